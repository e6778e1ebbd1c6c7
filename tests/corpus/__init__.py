"""The corpus: small kernels about one idea each, with their results said in NumPy. Every backend runs all of them."""

from __future__ import annotations

import importlib

from .case import Case

THEMES = """
control_flow integers floats pointers arrays structs classes templates lambdas calls vectors half globals shared
barriers warp atomics builtins math intrinsics preprocessing corners patterns
""".split()

ALL: list[Case] = [c for name in THEMES for c in importlib.import_module(f".{name}", __name__).theme.cases]
NAMES = [case.name for case in ALL]
