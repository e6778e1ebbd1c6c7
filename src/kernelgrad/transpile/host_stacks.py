"""Derivatives of functions of the host that keep values of every iteration of a loop: their tapes grow as they are
written. What a launch would be told about them (`autodiff/requested`, Note [Requests]) is the same for every call."""

from __future__ import annotations

from dataclasses import replace

from ..backends.cuda.names import in_namespace, once
from ..backends.cuda.types import Types
from ..ir.ops import Block, Builtin, Constant, Function, Module, Op, Param
from ..ir.traverse import descend, with_body
from ..ir.types import Pointer
from ..transforms import simplify

_ROOM = "1ll << 60"  # more than there is
_STACK = """\
// A tape of the host's, which grows.
template <typename T>
struct Stack {
    T *values = nullptr;
    size_t room = 0;

    Stack() = default;
    Stack(const Stack &) = delete;
    ~Stack() { std::free((void *)values); }
    T &operator*() { return (*this)[0]; }

    T &operator[](size_t at)
    {
        if (at < room) return values[at];
        size_t wanted = std::max<size_t>(at + 1, 2 * room + 64);
        void *larger = std::realloc((void *)values, wanted * sizeof(T));
        if (larger == nullptr) throw std::bad_alloc();
        values = (T *)larger;
        room = wanted;
        return values[at];
    }
};
"""
_INCLUDES = "#include <algorithm>\n#include <cstddef>\n#include <cstdlib>\n#include <new>\n"
STACK_TEXT = _INCLUDES + "\n" + "".join(in_namespace([once("stack", _STACK)]))


def alone(function: Function, module: Module) -> Function:
    """The function where there is one thread, the first of the first block."""

    def block(b: Block) -> Block:
        return replace(b, ops=tuple(_known(op) or descend(op, block) for op in b.ops))

    return simplify.run(with_body(function, block(function.body)), module)


def _known(op: Op) -> Op | None:
    number = _NUMBERS.get(op.name) if isinstance(op, Builtin) else None
    return None if number is None else Constant(number, results=op.results, span=op.span)


_NUMBERS = {"thread_idx": 0, "block_idx": 0, "block_dim": 1, "grid_dim": 1}


def is_of_stacks(param: Param, stacks: tuple[str, ...]) -> bool:
    """`stacks`: their names, such as f64."""
    return param.name == "_fits" or any(param.name == f"_{what}_{s}" for s in stacks for what in _WHAT)


_WHAT = ("tape", "capacity", "tops", "needed")


def with_stacks(text: str, function: Function, types: Types, stacks: tuple[str, ...]) -> str:
    """The text of a half, with tapes that grow as parameters."""
    for param in function.params:
        if param.name in {f"_tape_{s}" for s in stacks} and isinstance(param.type, Pointer):
            names = (f"__restrict__ {param.name}", param.name)  # see Note [Restrict]
            declared = next(d for n in names if (d := types.declare(param.type, n, param.const)) in text)
            text = text.replace(declared, f"Stack<{types.spell(param.type.pointee)}> &{param.name}", 1)
    return text


def in_two(name: str, halves: tuple[Function, Function], types: Types, stacks: tuple[str, ...]) -> str:
    """The function that runs both halves."""
    own = own_params(halves[1], stacks)
    declared = {p.name: p for half in halves for p in half.params if is_of_stacks(p, stacks)}
    lines = [line for param in declared.values() if (line := _declaration(param, types))]
    for half in halves:
        given = ", ".join(_given(p) if p.name in declared else p.name for p in half.params)
        lines.append(f"{half.name}({given});")
    head = ", ".join(types.declare(p.type, p.name, p.const) for p in own)
    return f"static void {name}({head})\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def own_params(function: Function, stacks: tuple[str, ...]) -> tuple[Param, ...]:
    return tuple(p for p in function.params if not is_of_stacks(p, stacks))


def _declaration(param: Param, types: Types) -> str:
    if not isinstance(param.type, Pointer):
        return ""
    spelled = types.spell(param.type.pointee)
    return f"Stack<{spelled}> {param.name};" if param.name.startswith("_tape_") else f"{spelled} {param.name} = 0;"


def _given(param: Param) -> str:
    if not isinstance(param.type, Pointer):
        return _ROOM
    return param.name if param.name.startswith("_tape_") else f"&{param.name}"
