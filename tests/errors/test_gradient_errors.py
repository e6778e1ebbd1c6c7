"""Constructs whose gradient is refused: a file each, with the message on the guilty line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kernelgrad as kg

FILES = sorted((Path(__file__).parent / "gradient").glob("*.cu"))
_EXPECTED = re.compile(r"// error: (.*)$")
_HEAD = re.compile(r"// gradient of: ([\w, ]+)(; primal=False)?$")


@pytest.mark.parametrize("file", [pytest.param(f, id=f.stem) for f in FILES])
def test_refused(file: Path) -> None:
    lines = file.read_text().splitlines()
    head = _HEAD.match(lines[0])
    assert head, "the first line says what to differentiate"
    options: dict[str, Any] = {"primal": False} if head[2] else {}
    ((number, message),) = [(k, m[1]) for k, line in enumerate(lines, 1) if (m := _EXPECTED.search(line))]
    with pytest.raises(kg.UnsupportedError) as caught:
        kg.gradient(kg.load(file)["k"], head[1], **options)
    assert message in caught.value.message
    assert caught.value.span.line == number, str(caught.value)
    assert caught.value.span.source.name.endswith(file.name)
    assert "^" in str(caught.value)
