"""Compiles a case once per process."""

from __future__ import annotations

import re
import textwrap
import warnings
from functools import cache

import kernelgrad as kg
from kernelgrad.kernel import Kernel

from .case import Case

# Headers that cases include and nobody has.
MISSING = {"boost/program_options.hpp", "my_missing_header.h", "vector", "thrust/device_vector.h", "cub/cub.cuh"}
_BY_NAME: dict[str, Case] = {}


def build(case: Case) -> Kernel:
    _BY_NAME[case.name] = case
    return _build(case.name)


@cache
def _build(name: str) -> Kernel:
    case = _BY_NAME[name]
    module = kg.compile(textwrap.dedent(case.source).lstrip("\n"), name=f"{name}.cu", **case.options)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        kernel = module[case.kernel]
    assert {_header(w) for w in warned} <= MISSING
    for variable, contents in case.constants.items():
        module.constant(variable)[...] = contents
    return kernel


def _header(warned: warnings.WarningMessage) -> str:
    found = re.search("the header '(.*)' was not found", str(warned.message))
    return found[1] if found else str(warned.message)
