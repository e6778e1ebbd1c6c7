"""Atomics of device functions through pointers to memory of all threads, or to a thread's own, where CUDA has none. Nor
are additions of several lanes at one address combined: each lane's own memory may be at the same one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ..analysis import roots
from ..backends.cuda.names import once
from ..backends.cuda.spellings import IS_LOCAL
from ..ir.ops import Atomic, Block, Function, Op
from ..ir.traverse import descend, with_body
from ..transforms.local_atomics import PLAIN, as_loads_and_stores

ADD = "kg::add"
_ADD_ANY = """// Adds to memory of all threads atomically, to the thread's own plainly. What was there.
template <typename T>
__device__ T add(T *address, T value)
{
    if (!is_local(address)) return atomicAdd(address, value);
    T before = *address;
    *address = before + value;
    return before;
}
"""
_TAKE_ANY = """// What is there, and leaves zero: of memory of all threads for one of them alone.
template <typename T>
__device__ T take_any(T *address)
{
    if (!is_local(address)) return take(address);
    T before = *address;
    *address = T(0);
    return before;
}
"""
ADD_TEXT = once("add", IS_LOCAL + _ADD_ANY)
_REPLACED = {re.compile(r"\batomicAdd\("): f"{ADD}(", re.compile(r"\bkg::take\("): "kg::take_any("}
_HELPERS = {f"{ADD}(": ADD_TEXT, "kg::take_any(": once("take_any", IS_LOCAL + _TAKE_ANY)}


def run(function: Function, own: frozenset[str]) -> Function:
    """`own`: the parameters that lead to memory of the thread itself, where atomics become loads and stores."""
    memory = roots.analyse(function)
    ours = {p.value for p in function.params if p.name in own}
    return _rewritten(function, lambda op: bool(memory.of(op.ptr)) and memory.of(op.ptr) <= ours)


def run_alone(function: Function) -> Function:
    """The same for the host, where there is no other thread: all memory is the thread's own."""
    return _rewritten(function, lambda op: True)


def _rewritten(function: Function, is_own: Callable[[Atomic], bool]) -> Function:
    """With loads and stores for atomics of the thread's own memory, and no hint that lanes add together."""

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for op in b.ops:
            if isinstance(op, Atomic) and op.kind in PLAIN and is_own(op):
                ops += as_loads_and_stores(op)
            else:
                ops.append(replace(op, together=False) if isinstance(op, Atomic) else descend(op, block))
        return replace(b, ops=tuple(ops))

    return with_body(function, block(function.body))


def without_kernel_comments(body: str) -> str:
    """Without comments that hold for kernels alone: why an addition is atomic, and that a block adds a number once."""
    lines = [line if "kg::" in line else _ATOMIC.sub("", line) for line in body.split("\n")]
    return _OF_BLOCKS.sub("", "\n".join(lines)).replace(_CONSUMED, "consumed")


_ATOMIC = re.compile(r"  // atomic: .*$")
_OF_BLOCKS = re.compile(r"  // every thread has a part of it: one addition for each block$", re.M)
_CONSUMED = "consumed, by one of the threads that may have stored the element"


def with_helpers(body: str) -> tuple[str, list[str]]:
    """A function's text with calls that tell whose memory it is, and the helpers that these call."""
    for pattern, helper in _REPLACED.items():
        body = pattern.sub(helper, body)
    return body, [text for name, text in _HELPERS.items() if name in body]
