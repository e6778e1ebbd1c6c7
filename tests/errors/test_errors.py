"""Each `.cu` file here has one construct that is refused, and says on its line which error it must be and where.

`// error: CLASS: MESSAGE // at: TEXT` — the caret stands under TEXT.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernelgrad as kg

FILES = sorted(Path(__file__).parent.glob("*.cu"))
_MARK = re.compile(r"^(?P<code>.*?)\s*// error: (?P<kind>\w+): (?P<message>.*) // at:(?: (?P<text>.*))?$")


@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_refused(file: Path) -> None:
    lines = file.read_text().splitlines()
    ((number, mark),) = [(k, m) for k, line in enumerate(lines, start=1) if (m := _MARK.match(line))]
    with pytest.raises(kg.KernelGradError) as caught:
        kg.load(file)["k"]
    error = caught.value
    assert type(error).__name__ == mark["kind"]
    assert isinstance(error, kg.SourceError)
    assert error.message == mark["message"]
    column = len(mark["code"]) + 1 if mark["text"] is None else mark["code"].rindex(mark["text"]) + 1
    assert (error.span.line, error.span.column) == (number, column)
    _check_rendering(str(error), file, number, column, lines[number - 1])


def _check_rendering(text: str, file: Path, number: int, column: int, line: str) -> None:
    head, shown, caret = text.splitlines()[:3]
    assert head.startswith(f"{file}:{number}:{column}: error: ")
    assert shown == f"{number:5} | {line}"
    assert caret.index("^") == len("      | ") + column - 1
    assert set(caret[caret.index("^") :]) == {"^"}


def test_an_error_elsewhere_does_not_matter() -> None:
    module = kg.compile("__global__ void bad(int* y) { y[0] = nothing; }\n__global__ void good(int* y) { y[0] = 1; }")
    assert repr(module["good"])
    with pytest.raises(kg.ParseError, match="nothing"):
        module["bad"]


def test_the_remedy_is_shown() -> None:
    with pytest.raises(kg.UnsupportedError, match="help: declare it __device__ or __constant__"):
        kg.compile("int n = 1;\n__global__ void k(int* y) { y[0] = n; }")["k"]
