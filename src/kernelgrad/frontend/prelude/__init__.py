"""The CUDA C++ headers that stand in for the toolkit's, and how clang is told to use them.

`kernelgrad.h` is what nvcc provides without any `#include`; the other headers add to it or are empty. A function of
the prelude either has a body, in C++, or is an intrinsic with a row in `frontend.intrinsics`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

# Host mode, since only there _Float16 and __bf16 are ordinary types; `__CUDA_ARCH__` is the prelude's to define.
_ARGUMENTS = (
    "-xcuda --cuda-host-only -nocudainc -nocudalib -nostdinc -nostdinc++ -Wno-everything -ferror-limit=0".split()
)


@cache
def prelude_dir() -> Path:
    return Path(__file__).parent


def parse_arguments(std: str = "c++17") -> list[str]:
    """Clang's arguments for a CUDA text in the given standard; `kernelgrad.h` itself comes as a precompiled header or
    by `-include kernelgrad.h`."""
    return [*_ARGUMENTS, f"-std={std}", "-isystem", str(prelude_dir())]
