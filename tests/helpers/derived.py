"""Kernels and gradients that several tests share: compiled and derived once in a process, while they are in use.

Tests of one kernel come one after another where they are parametrised with `scope="module"`. Not for tests that change
how derivatives are made.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import kernelgrad as kg


@lru_cache(64)
def kernel_of(source: str, name: str = "k") -> Any:
    return kg.compile(source)[name]


@lru_cache(16)
def tangent_of(kernel: Any, parameters: str | None = None) -> Any:
    return kg.jvp(kernel, parameters)


@lru_cache(16)
def split_of(kernel: Any, parameters: str | None = None) -> Any:
    return kg.split(kernel, parameters)


@lru_cache(16)
def gradient_of(kernel: Any, parameters: str | tuple[str, ...] | None = None, **options: Any) -> Any:
    return kg.gradient(kernel, parameters, **options)
