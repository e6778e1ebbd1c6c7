"""Functions of one thread that may be given the thread's own memory or that of all: for the first there are no
atomics. What other lanes add is not taken together either: the same address may be another lane's own memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ..analysis import roots
from ..backends.cuda.names import once
from ..backends.cuda.spellings import IS_LOCAL
from ..ir.ops import Atomic, Block, Function, Op
from ..ir.traverse import descend, with_body
from ..transforms.local_atomics import _PLAIN as PLAIN
from ..transforms.local_atomics import as_loads_and_stores

ADD = "kg::add"
_ADD = """// Adds to memory of all threads atomically, to the thread's own plainly. What was there.
template <typename T>
__device__ T add(T *address, T value)
{
    if (!is_local(address)) return atomicAdd(address, value);
    T before = *address;
    *address = before + value;
    return before;
}
"""
TAKE = """// What is there, and leaves zero: of memory of all threads for one of them alone.
template <typename T>
__device__ T take_any(T *address)
{
    if (!is_local(address)) return take(address);
    T before = *address;
    *address = T(0);
    return before;
}
"""
ADD_TEXT = once("add", IS_LOCAL + _ADD)
_NAMED = {re.compile(r"\batomicAdd\("): f"{ADD}(", re.compile(r"\bkg::take\("): "kg::take_any("}
_HELPERS = {f"{ADD}(": ADD_TEXT, "kg::take_any(": once("take_any", IS_LOCAL + TAKE)}


def run(function: Function, own: frozenset[str]) -> Function:
    """Each lane adds for itself. `own`: the parameters that lead to memory of the thread itself."""
    memory = roots.analyse(function)
    ours = {p.value for p in function.params if p.name in own}
    return _rewritten(function, lambda op: bool(memory.of(op.ptr)) and memory.of(op.ptr) <= ours)


def run_alone(function: Function) -> Function:
    """There is no other thread."""
    return _rewritten(function, lambda op: True)


def _rewritten(function: Function, is_own: Callable[[Atomic], bool]) -> Function:
    """What is done atomically to the thread's own memory are loads and stores."""

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, Atomic) and op.kind in PLAIN and is_own(op):
                ops += as_loads_and_stores(op)
            else:
                ops.append(replace(op, together=False) if isinstance(op, Atomic) else descend(op, block))
        return replace(b, ops=tuple(ops))

    return with_body(function, block(function.body))


def plainly_told(body: str) -> str:
    """Without reasons that hold for kernels: what is plain is not atomic, and numbers are the thread's own."""
    lines = [line if "kg::" in line else _ATOMIC.sub("", line) for line in body.split("\n")]
    return _OF_BLOCKS.sub("", "\n".join(lines)).replace(_CONSUMED, "consumed")


_ATOMIC = re.compile(r"  // atomic: .*$")
_OF_BLOCKS = re.compile(r"  // every thread has a part of it: one addition for each block$", re.M)
_CONSUMED = "consumed, by one of the threads that may have stored the element"


def spelled(body: str) -> tuple[str, list[str]]:
    """The text of such a function, and the helpers that it uses."""
    for pattern, name in _NAMED.items():
        body = pattern.sub(name, body)
    return body, [text for name, text in _HELPERS.items() if name in body]
