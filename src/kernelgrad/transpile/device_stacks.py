"""Derivatives in device code that keep values of every iteration of a loop: in memory that launches provide, as those
from Python do (Note [Requests] in `autodiff/requested`, `runtime/tapes`).

A thread's values lie on stacks, one for each type, whose places are in variables of the device. A launch that is
visible finds out whether all had room; if not, it is undone, by copies of the memory that its arguments lead to, and
made again with more.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..backends.cuda.names import in_namespace, once
from ..backends.cuda.types import Types
from ..errors import UnsupportedError
from ..frontend.clang import Cursor, Kind
from ..frontend.in_source import extent
from ..frontend.unit import Unit
from ..ir.ops import Function, Param
from ..ir.types import Pointer
from .call_text import start
from .edits import Edits
from .host_stacks import is_of_stacks, own_params
from .tape_memory import TapeMemory, Use, launch_parts, uses_in
from .undone_launches import UNDONE, check_undone

_STACK = """\
// Where the threads of a launch keep values of loops: a part for each, of so many.
struct ThreadStack {
    void *tape;
    long long capacity, *tops;
    unsigned long long *needed; // the most that a thread would have kept
};
"""
_MEMORY = """\
// For launches: the memory of a stack, how large its elements are, and the device's variable for it.
struct StackMemory {
    size_t size;
    void *variable;
    ThreadStack now;

    void make(size_t threads, long long capacity)
    {
        void *memory = nullptr;
        size_t tape = (capacity * size * threads + 15) / 16 * 16;
        if (cudaMalloc(&memory, tape + 8 * threads + 8) != cudaSuccess) Before::fail("memory for its tapes");
        char *tops = (char *)memory + tape;
        now = {memory, capacity, (long long *)tops, (unsigned long long *)(tops + 8 * threads)};
        cudaMemset(now.needed, 0, 8);
        cudaMemcpy(variable, &now, sizeof now, cudaMemcpyHostToDevice);
    }
    long long used() // and gives it back
    {
        unsigned long long needed = 0;
        cudaMemcpy(&needed, now.needed, 8, cudaMemcpyDeviceToHost);
        cudaFree(now.tape);
        return (long long)needed;
    }
};
"""
_LAUNCH = """\
// Launches a kernel whose derivatives keep values of loops, and waits for it.
template <typename... P>
void launch_with_stacks(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                        typename Plainly<P>::type... args)
{
    std::vector<StackMemory> stacks = all_stacks();
    std::vector<long long> rooms(stacks.size(), 64);
    size_t threads = (size_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    std::vector<Before> before;
    cudaDeviceSynchronize();
    (Before::keep(before, args), ...);
    for (bool fits = false; !fits;) {
        for (size_t k = 0; k < stacks.size(); ++k) stacks[k].make(threads, rooms[k]);
        kernel<<<grid, block, shared, stream>>>(args...);
        fits = true;
        bool failed = cudaPeekAtLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
        for (size_t k = 0; k < stacks.size(); ++k) {
            long long needed = stacks[k].used();
            fits = fits && (failed || needed <= rooms[k]);
            rooms[k] = std::max(rooms[k], needed);
        }
        for (size_t k = 0; k < before.size() && !fits; ++k)
            cudaMemcpy(before[k].memory, before[k].copy, before[k].nbytes, cudaMemcpyDefault);
    }
    for (const Before &one : before) cudaFree(one.copy);
}
"""
_INCLUDES = "#include <algorithm>\n#include <cstddef>\n#include <cstdio>\n#include <cstdlib>\n#include <vector>\n"
_IMPLICIT = (Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION)
_HINT = "ask for it in a function or a method, or let the loop's bounds be constants"
STACK = once("thread_stack", _STACK)


def variable(name: str) -> str:
    """Of the stack for values of a type, which has this name."""
    return f"stack_{name}"


def declared(stacks: Iterable[str]) -> list[str]:
    own = [once(variable(n), f"static __device__ ThreadStack {variable(n)};\n") for n in stacks]
    return [STACK, *own]


def in_two(name: str, halves: tuple[Function, Function], types: Types, stacks: tuple[str, ...]) -> str:
    """The function that runs both halves."""
    lines = ["bool fits = false;"]
    for half in halves:
        given = ", ".join(_given(p, types) if is_of_stacks(p, stacks) else p.name for p in half.params)
        call = f"{half.name}({given});"
        lines.append(call if half is halves[0] else f"if (fits) {call}")
    head = ", ".join(types.declare(p.type, p.name, p.const) for p in own_params(halves[1], stacks))
    return f"static __device__ void {name}({head})\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def _given(param: Param, types: Types) -> str:
    if param.name == "_fits":
        return "&fits"
    _, what, name = param.name.split("_", 2)
    place = f"{variable(name)}.{what}"
    return f"({types.spell(param.type, param.const)}){place}" if isinstance(param.type, Pointer) else place


class StackLaunches:
    """Of one program: which kernels come to such derivatives, and their launches."""

    def __init__(self, unit: Unit, edits: Edits, tapes: TapeMemory):
        self.unit, self.edits, self.tapes = unit, edits, tapes
        self._asking: dict[int, Cursor] = {}  # functions, by the byte where the definition begins
        self._requesting = set[int]()  # those of them that do so themselves
        self._stacks: dict[str, int] = {}  # the sizes of what is on them

    def note(self, function: Cursor, stacks: Iterable[tuple[str, int]]) -> None:
        """A function asks for a derivative with these stacks."""
        if function.kind in _IMPLICIT or (function.kind == Kind.CXX_METHOD and function.is_virtual_method()):
            problem = (
                f"'{function.spelling}', which asks for a derivative that keeps values of loops, need not be named"
            )
            raise UnsupportedError(
                f"{problem} where it is called: cannot be transpiled", self.unit.span(function), _HINT
            )
        self._asking[start(function)] = function
        self._stacks.update(stacks)

    @property
    def is_used(self) -> bool:
        return bool(self._asking)

    def text(self) -> str:
        """What launches need."""
        made = (
            f"    void *{n}_at = nullptr;\n    cudaGetSymbolAddress(&{n}_at, {variable(n)});\n" for n in self._stacks
        )
        listed = ", ".join(f"{{{size}, {name}_at, {{}}}}" for name, size in self._stacks.items())
        body = "".join(made) + f"    return {{{listed}}};\n"
        launch = f"static std::vector<StackMemory> all_stacks()\n{{\n{body}}}\n"
        texts = [UNDONE, *declared(self._stacks), "\n".join((_MEMORY, launch, _LAUNCH))]
        return _INCLUDES + "".join(in_namespace(texts))

    def rewrite(self, functions: list[Cursor]) -> int:
        """Has launches go through what finds room. The byte before which that must be known."""
        uses = [use for f in functions for use in uses_in(f)]
        self._requesting = set(self._asking)
        size = -1
        while size != len(self._asking):
            size = len(self._asking)
            for use in uses:
                if use.target in self._asking and use.call is not None and not use.is_launch:
                    self._asking.setdefault(start(use.function), use.function)
        self._check_reached(uses)
        launched, first = set[int](), min(self._asking)
        for use in uses:
            if use.target not in self._asking:
                continue
            if use.call is None:
                raise self._invisible(self._asking[use.target], use.at)
            if use.is_launch:
                launched.add(use.target)
                first = min(first, start(use.function))
                self._launch(use.call, self._asking[use.target])
        for at, function in self._asking.items():
            if self.unit.function_kind(function) == "kernel" and at not in launched:
                raise self._invisible(function, function)
        return first

    def _check_reached(self, uses: list[Use]) -> None:
        """A function that no kernel is seen to call is called in a way that is not seen."""
        callers = dict[int, set[int]]()
        for use in uses:
            if use.call is not None and not use.is_launch:
                callers.setdefault(use.target, set()).add(start(use.function))
        for at in self._requesting:
            reaching, waiting = {at}, [at]
            while waiting:
                more = callers.get(waiting.pop(), set()) - reaching
                reaching |= more
                waiting += more
            if not any(self.unit.function_kind(f) == "kernel" for a, f in self._asking.items() if a in reaching):
                raise self._invisible(self._asking[at], self._asking[at])

    def _invisible(self, function: Cursor, at: Cursor) -> UnsupportedError:
        problem = (
            f"'{function.spelling}' keeps values of loops, for which its launches provide memory: not visible here"
        )
        hint = f"launch it in this file as {function.spelling}<<<...>>>(...), or let the loop's bounds be constants"
        return UnsupportedError(problem, self.unit.span(at), hint)

    def _launch(self, call: Cursor, kernel: Cursor) -> None:
        span = self.unit.span(call)
        parts = launch_parts(self.unit, self.edits, call)
        how = [self.edits.slice(*part) for part in parts.configuration]
        how += ["0", "nullptr"][len(how) - 2 :]
        check_undone(self.unit, kernel, call)
        at = extent(call)
        if self.edits.covers(at.start) or self.tapes.passes_on(kernel):
            problem = (
                f"'{kernel.spelling}' keeps values of loops, and has tapes behind pointers, or is launched in a request"
            )
            raise UnsupportedError(f"{problem}: cannot be transpiled", span)
        args = ", ".join(self.edits.slice(*part) for part in parts.arguments)
        args = ", ".join([self.edits.slice(*parts.kernel), *how, *([args] if args else [])])
        self.edits.replace(at.start, at.end, f"kg::launch_with_stacks({args})")
