"""The two halves of a reverse of a host function that launches and allocates, as C++ functions: the first one records,
and the tape is the recording; the second one reverses it (`programs/halves` does so from Python)."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.cuda.names import once
from ..backends.cuda.types import Types
from ..ir.ops import Function, Param
from ..ir.types import Pointer
from .derived_functions import RESULT
from .growing_tapes import TAPE as FRAME
from .recording_text import TAPE

_HALF = """\
// A recording that is reversed later: the arguments hold for that what they held at its end.
struct Half : Recording {
    std::vector<void *> numbers; // cells of the arguments that are numbers
    std::vector<Saved> left;

    Saved contents(char *start, size_t nbytes, bool is_on_device)
    {
        record(nullptr, false);
        save(start, nbytes, is_on_device);
        Saved found = std::move(steps.back().saved.back());
        steps.pop_back();
        return found;
    }
    template <typename T>
    void has_adjoint(T *memory) // which the reverse is given
    {
        if (memory != nullptr) block_of(memory).shadow = (char *)this;
    }
    template <typename T>
    void adjoint_is(T *memory, T *shadow)
    {
        if (memory == nullptr) return;
        Block &block = block_of(memory);
        cudaPointerAttributes found;
        block.shadow = (char *)shadow - ((char *)memory - block.start);
        bool is_known = cudaPointerGetAttributes(&found, shadow) == cudaSuccess;
        bool is_managed = is_known && found.type == cudaMemoryTypeManaged;
        cudaGetLastError();
        if (block.managed && !is_managed)
            throw std::runtime_error("the adjoint of managed memory must lie in managed memory, too");
    }
    void leave()
    {
        for (auto &[start, block] : blocks) {
            if (block.own) continue;
            if (block.nbytes != unknown) left.push_back(contents(start, block.nbytes, block.on_device));
            else if (block.reread)
                throw std::runtime_error("the reverse reads memory of the caller's on the host, whose size is not "
                                         "known and which may change: use memory that the function allocates");
        }
    }
    void reverse()
    {
        std::vector<Saved> now;
        for (const Saved &one : left) now.push_back(contents(one.start, one.nbytes, one.on_device));
        for (const Saved &one : left) put_back(one);
        backward();
        for (const Saved &one : now) put_back(one);
    }
};
"""
HALF = once("half", _HALF)


def augmented(name: str, recorded: Function, params: Sequence[Param], listed: dict[str, Param], types: Types) -> str:
    """`params`: of the primal, and for its value."""
    lines, given = ["std::unique_ptr<Half> made(new Half);", f"Half &{TAPE} = *made;"], list[str]()
    for param in params:
        if param.name == RESULT:
            continue
        if isinstance(param.type, Pointer):
            lines.append(f"{TAPE}.given({param.name}, nullptr);")
            lines += [f"{TAPE}.has_adjoint({param.name});"] if param.name in listed else []
            given.append(f"({types.spell(param.type)}){param.name}" if param.const else param.name)
        elif param.name in listed:
            cell = f"{param.name}_cell"
            lines.append(f"{types.declare(Pointer(param.type), cell)} = {TAPE}.cell({param.name});")
            lines.append(f"{TAPE}.numbers.push_back({cell});")
            given.append(cell)
        else:
            given.append(param.name)
    lines.append(f"{recorded.name}({', '.join((TAPE, *given))});")
    if params and params[-1].name == RESULT:
        lines.append(f"*{RESULT} = *({types.spell(params[-1].type)}){TAPE}.result;")
    lines += [f"{TAPE}.leave();", f"*{FRAME} = made.release();"]
    return _function(name, [types.declare(p.type, p.name, p.const) for p in params], f"void **{FRAME}", lines)


def backward(name: str, params: Sequence[Param], listed: dict[str, Param], types: Types) -> str:
    """`params`: and those for adjoints."""
    lines = [f"std::unique_ptr<Half> made((Half *){FRAME});", f"Half &{TAPE} = *made;"]
    after = list[str]()
    for param in params:
        adjoint = listed.get(param.name)
        if adjoint is None or param.name == RESULT:
            continue
        if isinstance(param.type, Pointer):
            memory = f"({types.spell(param.type)}){param.name}" if param.const else param.name
            lines.append(f"{TAPE}.adjoint_is({memory}, {adjoint.name});")
        else:
            cell = f"({types.spell(Pointer(param.type))}){TAPE}.numbers[{len(after)}]"
            after.append(f"*{adjoint.name} += *{TAPE}.shadow({cell});")
    if RESULT in listed:
        pointer = types.spell(listed[RESULT].type)
        lines.append(f"*{TAPE}.shadow(({pointer}){TAPE}.result) = *{listed[RESULT].name};")
    lines += [f"{TAPE}.reverse();", *after]
    return _function(name, [types.declare(p.type, p.name, p.const) for p in params], f"void *{FRAME}", lines)


def _function(name: str, params: list[str], tape: str, lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"static void {name}({', '.join((*params, tape))})\n{{\n{body}}}\n"
