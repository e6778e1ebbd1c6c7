"""Threads that do several neighbouring elements each, with 16-byte accesses: where each element has its thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from derived import kernel_of
from every_plan import forced
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.launches import vector_width as launcher
from kernelgrad.runtime.config import make_launch
from kernelgrad.runtime.integers import Ways, known_launch
from some_cases import in_turn

I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"  # noqa: E741

# The body of `k(T *y, T *z, const T *x, const T *w, int n, int m)`; outputs, inputs.
CHOSEN: dict[str, tuple[str, str, str]] = {
    "elements": (f"{I} if (i < n) y[i] = sin(x[i]) * x[i];", "y", "x"),
    "early return": (f"{I} if (i >= n) return; y[i] = x[i] * x[i] * w[i];", "y", "x, w"),
    "two outputs": (f"{I} if (i < n) {{ y[i] = x[i] * w[i]; z[i] = x[i] / (w[i] + 3); }}", "y, z", "x, w"),
    "lower bound": (f"{I} if (i > 0 && i < n) y[i] = x[i] * x[i];", "y", "x"),
    "odd bounds": (f"{I} if (i >= m + 2 && i <= n - 3) y[i] = x[i] * x[i];", "y", "x"),
    "nested guards": (f"{I} if (i < n) {{ if (i > 5) y[i] = exp(x[i]) * w[i]; }}", "y", "x, w"),
    "polynomial": (
        f"{I} if (i >= n) return; T p = 0; for (int k = 0; k < 7; k++) p = p * x[i] + 1; y[i] = p;",
        "y",
        "x",
    ),
    "a loop in registers": (
        f"{I} if (i < n) {{ T s = x[i], v = 0; for (int k = 0; k < m; k++) v += (k + 1) * s; y[i] = v; }}",
        "y",
        "x",
    ),
    "a branch": (f"{I} if (i < n) y[i] = x[i] > 0 ? x[i] * w[i] : sqrt(-x[i]);", "y", "x, w"),
    "in place": (f"{I} if (i < n) y[i] = y[i] * x[i];", "y", "y, x"),
    "for all the same": (f"{I} if (i < n) y[i] = x[i] * w[0] + w[m];", "y", "x"),
    "an aligned start": (f"{I} if (i + 4 * m < n) y[i + 4 * m] = x[i] * x[i];", "y", "x"),
    "a factor of one": (f"{I} if (i < n) y[i * (m - 1)] = x[i] * x[i];", "y", "x"),
    "numbers of threads": (
        f"{I} if (i < n) y[i] = x[i] * x[i] * (threadIdx.x + 3 * blockIdx.x + gridDim.x);",
        "y",
        "x",
    ),
    "thread by thread": (
        "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; if (t < 13 && i < n) y[i] = x[i] * x[i];",
        "y",
        "x",
    ),
    "short circuits": (f"{I} if (i < n && (i > 2 && m != 9)) y[i] = x[i] * x[i];", "y", "x"),
    "exits": (f"{I} if (i >= n || i < 3 || m == 9) return; y[i] = x[i] * x[i];", "y", "x"),
    "a division": (f"{I} if (i < n / 2) y[i] = x[i] * x[i];", "y", "x"),
    "without a guard": (f"{I} y[i] = x[i] * w[i];", "y", "x, w"),
    "unsigned": ("unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i];", "y", "x"),
}
BLOCK, M = 16, 2
SIZES = (64, 61, 62, 63, 65, 3, 80)

NOT_CHOSEN: dict[str, tuple[str, str, str]] = {
    "strides": (f"{I} if (2 * i < n) y[2 * i] = x[2 * i] * x[2 * i];", "y", "x"),
    "a factor of two": (f"{I} if (i * m < n) y[i * m] = x[i * m] * 3;", "y", "x"),
    "an unaligned start": (f"{I} if (i + 1 < n) y[i + 1] = x[i] * x[i];", "y", "x"),
    "neighbours": (f"{I} if (i + 1 < n) y[i] = x[i] * x[i + 1];", "y", "x"),
    "backwards": (f"{I} if (i < n) y[n - 1 - i] = x[n - 1 - i] * 3;", "y", "x"),
    "an index": (f"{I} if (i < n) y[i] = x[(int)w[i]] * x[i];", "y", "x"),
    "a remainder": (f"{I} if (i < n && i % 2) y[i] = x[i] * x[i];", "y", "x"),
    "two halves": (f"{I} if (i < m) y[i] = x[i] * x[i]; if (i >= m && i < n) z[i] = x[i] * w[i];", "y, z", "x"),
    "a loop over memory": (
        f"{I} for (int k = i; k < n; k += gridDim.x * blockDim.x) y[k] = x[k] * x[k];",
        "y",
        "x",
    ),
    "shared memory": (f"__shared__ T s[64]; {I} s[threadIdx.x] = x[i]; __syncthreads(); y[i] = s[0] * 2;", "y", "x"),
    "shuffles": (f"{I} y[i] = __shfl_xor_sync(0xffff, x[i], 1) * x[i];", "y", "x"),
}


@pytest.fixture(autouse=True)
def small_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a small scale."""
    monkeypatch.setattr(launcher, "_ENOUGH", 1)
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))


def compiled(body: str, element: str = "float", more: str = "") -> Any:
    params = f"T *y, T *z, const T *x, const T *w, int n, int m{more}"
    return kernel_of(f"typedef {element} T; __global__ void k({params}) {{ {body} }}")


def split_names(names: str) -> list[str]:
    return [n.strip() for n in names.split(",")]


def listed(outputs: str, inputs: str) -> str:
    return ", ".join(dict.fromkeys(split_names(outputs) + split_names(inputs)))


def arrays(n: int, element: str, seed: int = 3) -> list[Any]:
    """Room for whole blocks, so that a kernel without a guard stays inside."""
    rng, size = np.random.default_rng(seed), -(-n // BLOCK) * BLOCK + 16
    type = np.float32 if element == "float" else np.float64
    return [rng.uniform(-2, 2, size).astype(type) for _ in range(4)]


def blocks(n: int) -> int:
    return -(-n // BLOCK) + 1  # one too many, all of it behind the guard


def grid_of(body: str, n: int) -> int:
    return blocks(n) if "if (" in body else -(-n // BLOCK)


def is_vectorized(gradient: Any) -> list[Any]:
    return [v for v in gradient.forms.made.values() if v.options.facts.vector is not None]


def run(gradient: Any, grid: int, data: list[Any], n: int, names: str) -> dict[str, Any]:
    """The adjoints, and the outputs, after a launch on copies."""
    own = [a.copy() for a in data]
    rng = np.random.default_rng(9)
    adjoints = {f"d_{name}": rng.uniform(-1, 1, len(data[0])).astype(data[0].dtype) for name in split_names(names)}
    gradient[grid, BLOCK](*own, n, M, **adjoints)
    return adjoints | dict(zip("yzxw", own, strict=True))


OPTIONS: dict[str, dict[str, Any]] = {
    "J": {},
    "R": {"primal": False},
    "kept": {"primal": False, "keep": True, "assign": True},
}


def options_for(how: str, outputs: str, inputs: str) -> dict[str, Any]:
    options = dict(OPTIONS[how])
    if "keep" in options:
        options |= {"keep": outputs, "assign": inputs}
    return options


@pytest.mark.parametrize(("name", "how"), in_turn(CHOSEN, tuple(OPTIONS)))
def test_values(name: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as thread by thread, wherever the last element is."""
    body, outputs, inputs = CHOSEN[name]
    if name == "in place" and how != "J":
        pytest.skip("needs what the kernel overwrites")
    kernel, names = compiled(body), listed(outputs, inputs)
    options = options_for(how, outputs, inputs)
    wide, plain = (kg.gradient(kernel, names, **options) for _ in range(2))
    found = {n: run(wide, grid_of(body, n), arrays(n, "float"), n, names) for n in SIZES}
    assert is_vectorized(wide), wide.forms.made
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways()))
    for n in SIZES:
        expected = run(plain, grid_of(body, n), arrays(n, "float"), n, names)
        for key, value in expected.items():
            np.testing.assert_array_equal(found[n][key], value, err_msg=f"{key}, n = {n}")
    assert not is_vectorized(plain)


@pytest.mark.parametrize("name", ["elements", "two outputs", "lower bound", "a branch", "polynomial"])
def test_finite_differences(name: str) -> None:
    body, outputs, inputs = CHOSEN[name]
    kernel, n = compiled(body, "double"), 61
    data, rng = arrays(n, "double"), np.random.default_rng(5)
    gradient = kg.gradient(kernel, listed(outputs, inputs))
    seeds = {out: rng.standard_normal(len(data[0])) for out in split_names(outputs)}
    adjoints = {f"d_{out}": s.copy() for out, s in seeds.items()}
    adjoints |= {f"d_{i}": np.zeros(len(data[0])) for i in split_names(inputs)}
    gradient[blocks(n), BLOCK](*(a.copy() for a in data), n, M, **adjoints)
    assert is_vectorized(gradient)[0].options.facts.vector.width == 2

    def value(step: float, changed: str, direction: Any) -> float:
        own = dict(zip("yzxw", (a.copy() for a in data), strict=True))
        own[changed] += step * direction
        kernel[blocks(n), BLOCK](*own.values(), n, M)
        return float(sum((own[out] * seed).sum() for out, seed in seeds.items()))

    for changed in split_names(inputs):
        direction = rng.standard_normal(len(data[0]))
        slope = (value(1e-6, changed, direction) - value(-1e-6, changed, direction)) / 2e-6
        assert float(adjoints[f"d_{changed}"] @ direction) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("name", CHOSEN)
def test_no_races(name: str) -> None:
    body, outputs, inputs = CHOSEN[name]
    kernel, names, n = compiled(body), listed(outputs, inputs), 61
    gradient = kg.gradient(kernel, names)
    for order in (None, 1, 2):
        data = arrays(n, "float")
        adjoints = {f"d_{name}": np.ones(len(data[0]), np.float32) for name in split_names(names)}
        report = gradient.check(grid_of(body, n), BLOCK, *data, n, M, seed=order, **adjoints)
        assert report.ok, str(report)
    assert is_vectorized(gradient)


@pytest.mark.parametrize("name", NOT_CHOSEN)
def test_not_chosen(name: str) -> None:
    body, outputs, inputs = NOT_CHOSEN[name]
    kernel, n = compiled(body), 64
    gradient = kg.gradient(kernel, listed(outputs, inputs))
    data = arrays(n, "float")
    data[3] = np.zeros_like(data[3])
    run(gradient, grid_of(body, n), data, n, listed(outputs, inputs))
    assert not is_vectorized(gradient)
    assert "16 bytes" not in gradient.explain()


def launched(gradient: Any, grid: Any, block: Any, size: int, shift: dict[str, int] | None = None, **kinds: Any) -> Any:
    """Whether a launch of `elements` does several elements at once; its adjoint is checked. `shift`: where arrays
    begin behind an aligned address."""

    def one(name: str, values: Any) -> Any:
        start = (shift or {}).get(name, 0)
        whole = np.zeros(size + 8, np.float32)
        whole[start : start + size] = values
        return whole[start : start + size]

    x, before = np.linspace(-2, 2, size), len(is_vectorized(gradient))
    given = {n: one(n, 0) for n in "yzw"} | {"x": one("x", x)}
    d_y, d_x = one("d_y", np.cos(x)), one("d_x", 1.0)
    gradient[grid, block](*(given[n] for n in "yzxw"), size, M, d_y, d_x)
    np.testing.assert_allclose(d_x, 1 + np.cos(x) * (np.sin(x) + x * np.cos(x)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(given["y"], np.sin(x) * x, rtol=1e-5, atol=1e-6)
    assert not d_y.any()
    return len(is_vectorized(gradient)) > before


@pytest.mark.parametrize("name", ["x", "y", "d_x", "d_y"])
@pytest.mark.parametrize("start", [1, 2, 3])
def test_unaligned_arrays(name: str, start: int) -> None:
    gradient = kg.gradient(compiled(CHOSEN["elements"][0]), "y, x")
    assert not launched(gradient, 8, BLOCK, 125, {name: start})
    assert launched(gradient, 8, BLOCK, 125, {name: 4})


def test_arrays_that_are_not_touched_may_be_anywhere() -> None:
    gradient = kg.gradient(compiled(CHOSEN["elements"][0]), "y, x")
    assert launched(gradient, 8, BLOCK, 125, {"z": 1, "w": 3})


@pytest.mark.parametrize(
    "grid, block, chosen",
    [
        (5, 32, True),
        (40, 4, True),
        (3, 1024, True),
        (1, 128, True),
        (9, 20, True),
        (25, 6, False),
        (20, 7, False),
        ((5, 2), 32, False),
        (5, (32, 2), False),
        ((5, 1, 2), 32, False),
    ],
)
def test_launches(grid: Any, block: Any, chosen: bool) -> None:
    """Rows of blocks of rows of threads that can be divided by four."""
    kernel = compiled(f"{I} if (i < n && blockIdx.y + blockIdx.z + threadIdx.y == 0) y[i] = sinf(x[i]) * x[i];")
    gradient = kg.gradient(kernel, "y, x")
    assert launched(gradient, grid, block, 125) == chosen


def test_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_ENOUGH", 129)
    gradient = kg.gradient(compiled(CHOSEN["elements"][0]), "y, x")
    assert not launched(gradient, 8, BLOCK, 125)
    assert launched(gradient, 9, BLOCK, 125)


def test_launch_bounds() -> None:
    """A block that is started has no more threads than the kernel allows."""
    source = "__global__ void __launch_bounds__(32) k(float *y, float *z, const float *x, const float *w, int n, int m)"
    kernel = kernel_of(f"{source} {{ {CHOSEN['elements'][0]} }}")
    gradient = kg.gradient(kernel, "y, x")
    assert launched(gradient, 8, BLOCK, 125)


def test_not_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(launcher, "_ENOUGH", 1)
    gradient = kg.gradient(compiled(CHOSEN["elements"][0]), "y, x")
    assert not launched(gradient, 8, BLOCK, 125)


def test_one_gradient_for_launches_of_both_kinds() -> None:
    gradient = kg.gradient(compiled(f"{I} if (i * m < n) y[i * m] = x[i * m] * x[i * m];"), "y, x")
    for m, expected in ((1, True), (2, False), (1, True), (4, False)):
        data = arrays(64, "float")
        d_y, d_x = np.ones(80, np.float32), np.zeros(80, np.float32)
        primal, _ = gradient.kernel.bind((*data, 64, m))
        known = known_launch(gradient.kernel.function, ("y", "x"), make_launch(4, BLOCK), primal, Ways(on_gpu=True))
        quads = launcher.find_in(gradient.forms.for_launch(known), known, known.answers(gradient.kernel.function))
        assert (quads is not None) == expected
        gradient[4, BLOCK](*data, 64, m, d_y, d_x)
        np.testing.assert_array_equal(d_x[:64:m], 2 * data[2][:64:m])
        assert not d_x[64:].any() and np.count_nonzero(d_x) == 64 // m


def test_doubles_and_floats() -> None:
    """Four elements of both: of doubles, two and two."""
    body = f"{I} if (i < n) y[i] = x[i] * (double)x[i] * c[i];"
    source = f"__global__ void k(double *y, const float *x, const int *c, int n) {{ {body} }}"
    gradient = kg.gradient(kernel_of(source), "y, x", primal=False, keep="y", assign="x")
    n = 61
    x, c = np.linspace(1, 2, n, dtype=np.float32), np.arange(n, dtype=np.int32)
    seed, d_x = np.linspace(0.5, 1.5, n), np.zeros(n, np.float32)
    gradient[4, BLOCK](np.zeros(n), x, c, n, seed, d_x)
    np.testing.assert_allclose(d_x, 2 * x * c * seed, rtol=1e-6)
    (variant,) = is_vectorized(gradient)
    assert variant.options.facts.vector.width == 4
    text = variant.source(0)
    assert text.count("= *(double2 *)") + text.count("= ((double2 *)") == 2 and "int4 " in text and "float4 " in text


def test_numbers_are_summed_thread_by_thread() -> None:
    kernel = compiled(f"{I} if (i < n) y[i] = x[i] * a;", more=", float a")
    gradient = kg.gradient(kernel, "y, x, a")
    data, d_a, n = arrays(61, "float"), np.zeros(1, np.float32), 61
    d_y, d_x = np.ones(80, np.float32), np.zeros(80, np.float32)
    gradient[4, BLOCK](*data, n, M, 2.5, d_y, d_x, d_a)
    assert not is_vectorized(gradient)
    assert d_a[0] == pytest.approx(data[2][:n].sum(), rel=1e-4)
    np.testing.assert_array_equal(d_x[:n], np.full(n, 2.5, np.float32))


def test_a_number_that_is_not_listed() -> None:
    kernel = compiled(f"{I} if (i < n) y[i] = x[i] * a;", more=", float a")
    gradient = kg.gradient(kernel, "y, x")
    data, d_y, d_x = arrays(61, "float"), np.ones(80, np.float32), np.zeros(80, np.float32)
    gradient[4, BLOCK](*data, 61, M, 2.5, d_y, d_x)
    assert is_vectorized(gradient)
    np.testing.assert_array_equal(d_x, np.where(np.arange(80) < 61, np.float32(2.5), np.float32(0)))


def test_what_is_not_a_number() -> None:
    gradient = kg.gradient(compiled(CHOSEN["a branch"][0]), "y, x, w")
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, 3e38, -1], np.float32)
    x = np.resize(odd, 80)
    data = [np.zeros(80, np.float32), np.zeros(80, np.float32), x, np.ones(80, np.float32)]
    d_y, d_x, d_w = (np.full(80, v, np.float32) for v in (1, 0, 0))
    gradient[4, BLOCK](*data, 61, M, d_y, d_x, d_w)
    assert is_vectorized(gradient)
    with np.errstate(all="ignore"):
        expected = np.where(x > 0, 1, -0.5 / np.abs(np.sqrt(-x))).astype(np.float32)  # sqrt(-0.0) rises too
    expected[61:] = 0
    np.testing.assert_allclose(d_x, expected, rtol=1e-6)


def test_the_text() -> None:
    gradient = kg.gradient(compiled(CHOSEN["elements"][0]), "y, x", primal=False, keep="y", assign="x")
    assert launched_text(gradient).count("float4 ") == 5
    text = launched_text(gradient)
    assert "*(const float4 *)&x[i]" in text and "const float *__restrict__ x" in text
    together = text[: text.index("else")]
    assert together.index("&_d_y[i];") < together.index("sincosf(")  # loads come first
    assert "each thread does 4 neighbouring elements and loads and stores 16 bytes at a time" in gradient.explain()


def launched_text(gradient: Any) -> str:
    if not is_vectorized(gradient):
        size = 128
        zeros = [np.zeros(size, np.float32) for _ in range(6)]
        gradient[8, BLOCK](*zeros[:4], size, M, *zeros[4:])
    return str(is_vectorized(gradient)[0].source(0))


SUM = """
__global__ void k(const float *x, float *y, int n) {
    extern __shared__ float s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] * x[i] : 0.0f;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
    if (t == 0) y[blockIdx.x] = s[0];
}
"""


def test_several_elements_of_what_has_no_barriers_for_the_launch() -> None:
    """A tree in dynamic shared memory is one where the launch tells its size: the code is of that kernel, too."""
    n, block = 1 << 20, 256
    x, y = np.ones(n, np.float32), np.zeros(n // block, np.float32)
    g = kg.gradient(kg.compile(SUM)["k"], "y, x", primal=False, keep="y")
    text = g.source_for(n // block, block, x, y, n, shared=4 * block, on_gpu=True)
    assert "what 4 threads of the kernel do" in text and "__syncthreads" not in text


def test_the_gradient_of_a_sum_in_dynamic_shared_memory() -> None:
    x, d_y = np.linspace(0.5, 1, 100, dtype=np.float32), np.array([1, 10], np.float32)
    for plan in ("as on a GPU", "in two on a GPU"):
        d_x = np.zeros_like(x)
        with forced(plan):
            g = kg.gradient(kg.compile(SUM)["k"], "x, y")
            g[2, 64, 256](x, np.zeros(2, np.float32), 100, d_x, d_y.copy())
        np.testing.assert_allclose(d_x, 2 * x * d_y[np.arange(100) // 64], rtol=1e-6, err_msg=plan)
