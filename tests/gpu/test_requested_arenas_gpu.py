"""Tapes of any number and size that kernels ask for, on a GPU: in arenas that grow, on streams, used again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from arena_cases import CASES, CHAIN, ENDS, Chains, ends_by_what_reverses_give
from kernelgrad.errors import LaunchError
from kernelgrad.runtime import tapes
from programs_to_transpile import HOST_TAPES, TAPES

cupy = pytest.importorskip("cupy")


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    CASES[name](cupy)


@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str) -> None:
    ends_by_what_reverses_give(cupy, name)


@pytest.mark.parametrize("named", [False, True], ids=["current", "named"])
def test_streams(named: bool) -> None:
    """Tapes that are made on one stream and used on another, each of which waits for nobody."""
    module, kept = kg.compile(CHAIN + f"// on streams {named}"), []
    for most in (20, 300, 900):
        made, used = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        with made:
            chains = Chains(cupy, np.arange(8192) % most)
            chains.forward(module, *((256, 32, 0, made) if named else ()))
            chains.w[:] = 50
        made.synchronize()
        kept.append((chains, used))
    for chains, used in kept:
        with used:
            chains.backward(module, *((256, 32, 0, used) if named else ()))
    for chains, used in kept:
        used.synchronize()
        chains.compare()


def test_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another stream than before, and with what the tapes before left in it."""
    monkeypatch.setattr(tapes, "_MUCH", 1 << 16)
    module = kg.compile(CHAIN + "// used again")
    for most in (300, 299, 300, 5, 300):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            chains = Chains(cupy, np.arange(2048) % most)
            chains.forward(module)
            chains.backward(module)
            stream.synchronize()
        chains.compare()
    (arena,) = module["forward"]._growing
    assert sum(map(len, arena.memory._given.values())) <= 2


def test_a_captured_stream() -> None:
    module, stream = kg.compile(CHAIN), cupy.cuda.Stream(non_blocking=True)
    with stream:
        chains = Chains(cupy, np.full(32, 3))
        chains.forward(module)
        stream.begin_capture()
        with pytest.raises(LaunchError, match="while a CUDA graph is captured"):
            chains.forward(module)
        stream.end_capture()


@pytest.mark.parametrize("text", [TAPES, HOST_TAPES], ids=["kernels", "host"])
def test_mains(text: str, capsys: Any) -> None:
    printed = []
    for device in ("cpu", "cuda"):
        kg.compile(text, name="tapes.cu")["main"](device=device)
        printed.append([float(number) for number in capsys.readouterr().out.split()])
    assert len(printed[0]) > 9
    np.testing.assert_allclose(printed[1], printed[0], rtol=1e-8)
