"""Gathers whose threads have neighbouring elements, loaded and stored 16 bytes at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways
from some_cases import in_turn

I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; T s = 0;"  # noqa: E741
WINDOWS = {
    "taps": f"{I} for (int k = 0; k < 7; k++) s += w[k] * x[i + k]; y[i] = s;",
    "backwards": f"{I} for (int k = 0; k < 5; k++) s += w[k] * x[i + 6 - k]; y[i] = s;",
    "from three on": f"{I} for (int k = 0; k < 4; k++) s += w[k] * x[i + k + 3]; y[i] = s;",
    "every other": f"{I} for (int k = 0; k < 4; k++) s += w[k] * x[i + 2 * k]; y[i] = s;",
    "of a product": f"{I} for (int k = 0; k < 3; k++) s += w[k] * x[i + k] * x[i + k]; y[i] = s;",
    "two loops": f"""{I} for (int k = 0; k < 3; k++) s += w[k] * x[i + k];
        for (int k = 0; k < 2; k++) s += w[k + 3] * x[i + k + 4]; y[i] = s;""",
    "behind a test": f"{I} for (int k = 0; k < 3; k++) if (w[k] > 0.3) s += w[k] * x[i + k]; y[i] = s;",
    "scaled": f"{I} for (int k = 0; k < 3; k++) s += w[k] * x[i + k] * z[i]; y[i] = s;",
}
OTHERS = {
    "so many as given": f"{I} for (int k = 0; k < n % 5; k++) s += w[k] * x[i + k]; y[i] = s;",
    "too many": f"{I} for (int k = 0; k < 65; k++) s += w[k % 9] * x[i + k]; y[i] = s;",
    "every other element": f"{I} for (int k = 0; k < 2; k++) s += w[k] * x[2 * i + 2 * k]; y[i] = s;",
    "no loop": f"{I} y[i] = x[i] + x[i + 1];",
}
ALL = {**WINDOWS, **OTHERS}
GRID, BLOCK = 13, 16
SIZE = GRID * BLOCK


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large buffers on a GPU."""
    monkeypatch.setattr("kernelgrad.autodiff.accumulate.gather.pattern._MANY", 1)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways()))


def compiled(body: str, type: str) -> Any:
    head = f"typedef {type} T;\n__global__ void k(T *y, const T *x, const T *w, const T *z, int n)"
    return kernel_of(f"{head} {{ {body} }}")


def arguments(type: str, n: int, first: int = 0) -> list[Any]:
    rng, dtype = np.random.default_rng(2), {"float": np.float32, "double": np.float64}[type]
    sizes = (n, 2 * SIZE + 80, 9, SIZE)
    return [rng.random(size + first).astype(dtype)[first:] for size in sizes]


def gathers(gradient: Any, args: list[Any], n: int) -> list[Any]:
    primal, _ = gradient.kernel.bind((*args, n))
    facts = gradient.variant_for(gradient.settings.listed, make_launch(GRID, BLOCK), primal).options.facts
    return list(facts.gathered)


FORMS: dict[str, dict[str, Any]] = {"joint": {}, "reverse": {"primal": False, "keep": "y", "assign": "x"}}


@pytest.mark.parametrize("name", ALL, scope="module")
def test_is_chosen_where_it_is_right(name: str) -> None:
    gradient = kg.gradient(compiled(ALL[name], "float"), "y, x")
    assert all(gather.name == "x" for gather in gathers(gradient, arguments("float", SIZE), SIZE))
    assert any(gather.taps for gather in gathers(gradient, arguments("float", SIZE), SIZE)) == (name in WINDOWS)


@pytest.mark.parametrize("buffers", [("float", SIZE, 0), ("double", SIZE - 5, 0), ("float", SIZE - 6, 1)])
@pytest.mark.parametrize(("name", "form"), in_turn(ALL, tuple(FORMS)))
def test_values(name: str, buffers: tuple[str, int, int], form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that begin between multiples of 16 bytes, at the last of the three, are loaded element by element."""
    (type, n, first), options = buffers, FORMS[form]
    found = []
    for scattered in (False, True):
        if scattered:
            monkeypatch.setattr("kernelgrad.launches.choice.gathers.Gathers.find", lambda *_: ())
        gradient, args = kg.gradient(compiled(ALL[name], type), "y, x", **options), arguments(type, n, first)
        d_y, d_x = (np.sin(np.arange(v.size, dtype=v.dtype)) for v in args[:2])
        d_y, d_x = (np.concatenate([np.zeros(first, v.dtype), v])[first:] for v in (d_y, d_x))
        assert bool(gathers(gradient, args, n)) != scattered or name in OTHERS
        gradient[GRID, BLOCK](*args, n, d_y, d_x)
        found.append((args[0], d_y, d_x))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WINDOWS)
def test_no_races(name: str) -> None:
    """Nor accesses outside of buffers."""
    gradient, args = kg.gradient(compiled(WINDOWS[name], "double"), "y, x"), arguments("double", SIZE - 3)
    args[1] = args[1][: SIZE - 3 + {"every other": 6}.get(name, 6)].copy()
    for seed in (None, 1):
        report = gradient.check(GRID, BLOCK, *args, SIZE - 3, np.ones(SIZE - 3), np.zeros(args[1].size), seed=seed)
        assert report.ok, str(report)


def test_loads_are_wide() -> None:
    kernel = compiled(WINDOWS["taps"], "float")
    gradient, args = kg.gradient(kernel, "y, x", primal=False, keep="y", assign="x"), arguments("float", SIZE)
    given = (*args, SIZE, np.ones(SIZE, np.float32), np.ones(args[1].size, np.float32))
    steps, _, _ = gradient._prepare(make_launch(GRID, BLOCK), given, {})
    text = steps[0].kernel.source
    wide, _, plain = text.partition("} else {")
    assert wide.count("float4 _d_y_value") == 3 and "*(float4 *)&_d_x[" in wide and "float4" not in plain


def test_is_explained() -> None:
    gradient, args = kg.gradient(compiled(WINDOWS["taps"], "float"), "y, x"), arguments("float", SIZE)
    text = gradient.explain(GRID, BLOCK, *args, SIZE)
    assert "each thread does 4 neighbouring elements, 16 bytes at a time" in text
