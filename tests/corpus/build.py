"""Compiles a case once per process."""

from __future__ import annotations

import textwrap
from functools import cache

import kernelgrad as kg
from kernelgrad.kernels import Kernel

from .case import Case

_BY_NAME: dict[str, Case] = {}


def build(case: Case) -> Kernel:
    _BY_NAME[case.name] = case
    return _build(case.name)


@cache
def _build(name: str) -> Kernel:
    case = _BY_NAME[name]
    module = kg.compile(textwrap.dedent(case.source).lstrip("\n"), name=f"{name}.cu", **case.options)
    kernel = module[case.kernel]
    for variable, contents in case.constants.items():
        module.constant(variable)[...] = contents
    return kernel
