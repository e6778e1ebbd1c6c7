"""Which loads of a PTX text go through the read-only path though the kernel writes the memory.

Compilers choose that path for `__restrict__` parameters, and get it wrong where they make one load of two (see Note
[Merged loads]). Where addresses come from is found without regard to the order of instructions: registers that are
reused stand for all that they ever held. So a store tells what is written only if it can be but one parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelgrad.runtime.nvrtc import ptx_of

_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\n}\n", re.S)
_INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+ )?([\w.]+)\s+(.*);$", re.M)
_REGISTER = re.compile(r"%rd\d+")
_WRITES = ("st.global", "atom.global", "red.global", "st.v", "st.f", "st.u", "st.b", "atom.", "red.")


def wrongly_read_only(text: str) -> list[str]:
    """`text`: CUDA C++."""
    return [f"{name}: {load}" for name, body in _ENTRY.findall(ptx_of(text, "compute_90")) for load in _in_kernel(body)]


def _in_kernel(body: str) -> Iterator[str]:
    instructions = _INSTRUCTION.findall(body)
    roots = _roots(instructions)
    written = set[str]()
    for name, operands in instructions:
        to = _of(roots, operands) if name.startswith(_WRITES) else set()
        written |= to if len(to) == 1 else set()
    for name, operands in instructions:
        of = _of(roots, operands) if name.startswith("ld.global.nc") else set()
        if of & written and "0" not in of:  # one null may begin several pointers
            yield f"{name} {operands}"


def _of(roots: dict[str, set[str]], operands: str) -> set[str]:
    address = re.search(r"\[(.*?)\]", operands)
    found = _REGISTER.findall(address[1]) if address else []
    return set[str]().union(*(roots.get(register, set()) for register in found))


def _roots(instructions: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Of each 64-bit register, the parameters (and variables) that it may come from."""
    roots: dict[str, set[str]] = {}
    flows: list[tuple[str, list[str]]] = []
    for name, operands in instructions:
        target, _, rest = operands.partition(",")
        if not _REGISTER.fullmatch(target.strip()) or name.startswith(("ld.global", "ld.local", "ld.shared")):
            continue
        if name.startswith(("ld.param", "mov")) and not rest.strip().startswith("%"):
            roots.setdefault(target.strip(), set()).add(rest.strip())
        else:
            flows.append((target.strip(), _REGISTER.findall(rest)))
    changed = True
    while changed:
        changed = False
        for target, sources in flows:
            before = roots.setdefault(target, set())
            more = set[str]().union(*(roots.get(source, set()) for source in sources)) - before
            before |= more
            changed = changed or bool(more)
    return roots
