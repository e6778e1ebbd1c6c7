"""Host programs as different people write them. Each compares the gradient of its `run` with finite differences, and
prints a line `ok` for each of six numbers."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "programs" / "written"
_HEADERS = ("clad/Differentiator/Differentiator.h", "cmath", "cstdio", "cstdlib", "cstring")
NAMES = sorted(file.stem for file in _FOLDER.glob("*.cu"))
TRANSPILED = sorted(set(NAMES) - {"thrust"})


def host_program(name: str, folder: Path) -> str:
    """`folder`: where it may write."""
    kernels = (_FOLDER / "kernels.h").read_text()
    run = (_FOLDER / f"{name}.cu").read_text().replace('#include "kernels.h"\n', kernels).replace("FOLDER", str(folder))
    return "".join(f"#include <{header}>\n" for header in _HEADERS) + run + (_FOLDER / "compare.h").read_text()


def check(printed: str) -> None:
    assert [line.split()[0] for line in printed.splitlines()] == ["ok"] * 6, printed
