"""Memory for what threads compute for gathers (see `autodiff/accumulate/gather/staging`)."""

from __future__ import annotations

from collections.abc import Iterable

from ...autodiff.accumulate.gather.staging import PREFIX
from ...ir.builder import pointee
from ...ir.ops import Function
from .buffers import THREADS, Memory, Need


def staged_values(functions: Iterable[Function]) -> list[Need]:
    params = {p.name: p for f in functions for p in f.params if p.variable and p.variable.startswith(PREFIX)}
    role = "what threads compute for those that gather"
    return [Memory(name, THREADS * pointee(p.value).size, None, role) for name, p in params.items()]
