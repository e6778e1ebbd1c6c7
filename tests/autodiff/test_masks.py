"""Rule 23: a masked zero stays zero, whatever it is multiplied by; what is no number stays so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.derivatives.gradient import Gradient
from kernelgrad.runtime.integers import Ways
from mask_cases import SOURCE, bodies, check, convolution, product

N = 5
POINTS = {"x": [0.0, 0.7, 2.5, 0.0, 1.3], "a": [2.0, -1.0, 0.5, 3.0, 1.2]}

# Each is masked where x is 0, with an infinity or NaN before the mask. `T` is the type.
MASKED = {
    "branch": "T v = 1 / (x[i] * x[i]); v = v * v * v * a[i]; if (x[i] == 0) v = 0; y[i] = v;",
    "ternary": "T l = a[i] * log(x[i]); y[i] = x[i] > 0 ? l : 0;",
    "minimum": "y[i] = fmin(fabs(a[i]) * rsqrt(x[i]), T(10)) * x[i];",
    "clamped": "T v = fmin(fmax(a[i] / x[i], T(-9)), T(9)); y[i] = v * v * x[i];",
    "root": "T s = sqrt(x[i]), v = a[i] * s * s * s; v = x[i] > 0 ? v + s : 0; y[i] = v * 3;",
    "power": "T p = pow(x[i], T(-2.5)) * a[i]; p = x[i] > 0 ? p * p : 0; y[i] = p * a[i];",
    "quotient": "T q = a[i] / x[i] / x[i]; q = q * q; y[i] = (x[i] == 0 ? T(0) : q) + a[i];",
    "loop": "T v = 1, r = 1 / x[i]; for (int k = 0; k < 3; k++) v = v * r * a[i] + r; y[i] = x[i] == 0 ? a[i] : v;",
    "while": "T v = a[i] / x[i]; int k = 0; while (k++ < 3) v = v * v / (1 + v * v); y[i] = x[i] == 0 ? 0 : v;",
    "continue": (
        "T s = 0; for (int j = 0; j < n; j++) { T d = x[j] * x[j], e = 1 / d, f = e * e * a[j] * a[i];"
        " if (x[j] == 0) continue; s += f * e; } y[i] = s;"
    ),
    "an iteration's select": (
        "T v = a[i] * T(3e38); v = v * v; v = v * v; v = v * v; v = v * v;"
        " for (int k = 0; k < n; k++) { v = k == 0 ? T(2) : v; v = v * T(1.5); } y[i] = v * x[i];"
    ),
    "an overflow": (
        "T v = x[i] == 0 ? a[i] + 9 : x[i], c = a[i];"
        " for (int k = 0; k < 3 * n; k++) v = v * v * (x[i] == 0 ? c : T(.1)); y[i] = x[i] == 0 ? a[i] : v;"
    ),
    "helper": "y[i] = x[i] == 0 ? 0 : bond(a[i] * a[i], x[i]) * a[i];",
    "vector": "V v = {a[i] / x[i], a[i] * x[i]}; v.u = v.u * v.u * v.w; if (x[i] == 0) v.u = 0; y[i] = v.u + v.w;",
    "array": "T v[3]; v[1] = log(x[i]) * a[i]; v[0] = v[1] * v[1]; v[2] = v[0] * v[1]; y[i] = x[i] > 0 ? v[n % 3] : 0;",
    "sum": "T r = 1 / x[i], s = a[i] * r + a[i] * a[i] * r * r; T t = s * r + r; y[i] = x[i] == 0 ? 0 : t * s;",
    "atomic": "T r = a[i] / x[i]; r = r * r; r = x[i] == 0 ? 0 : r; atomicAdd(&y[0], r * a[i]);",
    "shared": (
        "__shared__ T tile[8]; tile[i] = a[i] / x[i]; __syncthreads(); T s = 0;"
        " for (int j = 0; j < n; j++) { T e = tile[j] * tile[j]; s += x[j] == 0 ? 0 : e * a[i]; } y[i] = s;"
    ),
    "shuffle": (
        "T r = a[i] / x[i]; r = r * r; r = x[i] == 0 ? 0 : r;"
        " for (int d = 1; d < 4; d *= 2) r += __shfl_xor_sync(0xffffffffu, r, d); if (i < n) y[i] = r;"
    ),
    "a chosen pointer": (
        "T r = sin(a[i] / x[i]), v = a[i]; T *q = x[i] != 0 ? &r : &v; if (a[i] == T(0.5)) return; y[i] = *q * a[i];"
    ),
    "swapped pointers": (
        "T r = a[i] * rsqrt(x[i]), v = a[i]; T *q = &r, *p = &v; if (x[i] == 0) { T *s = q; q = p; p = s; }"
        " if (a[i] == T(0.5)) return; y[i] = sin(*q);"
    ),
    "more factors than are kept": (
        "T r = exp(-fabs(sin(sin(sqrt(x[i] * x[i]))))), v = a[i]; for (int k = 0; k < 3; k++) v = v * r + a[i];"
        " y[i] = x[i] > 0 ? v : a[i];"
    ),
    "pairs": (
        "T e = 0; for (int j = 0; j < n; j++) { T d = a[i] - a[j], r = 1 / (d * d), s = r * r * r, v = 4 * (s * s - s);"
        " if (j == i) v = 0; e += v * x[j]; } y[i] = e;"
    ),
}
GUARDED = {name for name in MASKED if name != "shuffle"}
BEFORE = (
    "struct V { T u, w; };\n__device__ T bond(T a, T x) { T r = 1 / (x * x), s = r * r * r;"
    " return a * s * (s - 1) + sqrt(a) * r; }\n"
)


def compiled(name: str, type: str) -> Any:
    guard = "if (i >= n) return;" if name in GUARDED - {"shared"} else ""
    body = f"int i = threadIdx.x; {guard} {MASKED[name]}"
    text = f"{BEFORE}__global__ void k(T *y, const T *x, const T *a, int n) {{ {body} }}"
    return kg.compile(text.replace("T ", f"{type} ").replace("T(", f"{type}("), name=f"{name}.cu")["k"]


def arguments(name: str, type: str) -> tuple[Any, ...]:
    count, dtype = (32 if name == "shuffle" else N), np.dtype(type)
    fill = {key: np.resize(np.array(values, dtype), count) for key, values in POINTS.items()}
    return np.zeros(count, dtype), fill["x"], fill["a"], N


def block_of(name: str) -> int:
    return 32 if name == "shuffle" else N


def differences(kernel: Any, name: str, seed: Any) -> tuple[Any, Any]:
    """In double; by x only where it is not 0: next to it the masked function may do anything."""
    y, x, a, n = arguments(name, "f8")

    def value(x: Any, a: Any) -> float:
        out = np.zeros_like(y)
        kernel[1, block_of(name)](out, x, a, n)
        return float(out @ seed)

    h, found = 1e-6, []
    for which in (0, 1):
        by = np.zeros_like(x)
        for k in range(x.size):
            step = h * np.eye(x.size)[k]
            ends = [value(x + s * step * (which == 0), a + s * step * (which == 1)) for s in (1, -1)]
            by[k] = (ends[0] - ends[1]) / (2 * h)
        found.append(np.where(x == 0, 0, by) if which == 0 else by)
    return found[0], found[1]


FORMS = {
    "J": lambda k: kg.gradient(k, "y, x, a"),
    "R": lambda k: kg.gradient(k, "y, x, a", primal=False),
    "deterministic": lambda k: kg.gradient(k, "y, x, a", deterministic=True),
    "split": lambda k: kg.split(k, "y, x, a"),
}


def run(form: str, kernel: Any, name: str, type: str, seed: Any) -> tuple[Any, Any]:
    y, x, a, n = arguments(name, type)
    d_y, d_x, d_a = seed.astype(type), np.zeros_like(x), np.zeros_like(a)
    launch, target = (1, block_of(name)), FORMS[form](kernel)
    if form == "split":
        forward, reverse = target
        tape = forward[launch](y, x, a, n)
        reverse[launch](tape, y, x, a, n, d_y, d_x, d_a)
    else:
        target[launch](y, x, a, n, d_y, d_x, d_a)
    return d_x, d_a


def seeds(name: str) -> Any:
    """With a zero, where nothing is masked."""
    count = arguments(name, "f8")[0].size
    return np.resize(np.array([1.0, -0.5, 0.0, 2.0, 1.5]), count)


@pytest.mark.parametrize("name", sorted(MASKED))
def test_masked(name: str) -> None:
    kernel = compiled(name, "double")
    by_x, by_a = differences(kernel, name, seeds(name))
    x = arguments(name, "f8")[1]
    for form in FORMS:
        d_x, d_a = run(form, kernel, name, "f8", seeds(name))
        assert np.isfinite(d_x).all() and np.isfinite(d_a).all(), form
        np.testing.assert_allclose(np.where(x == 0, 0, d_x), by_x, rtol=2e-5, atol=1e-6, err_msg=form)
        np.testing.assert_allclose(d_a, by_a, rtol=2e-5, atol=1e-6, err_msg=form)


@pytest.mark.parametrize("name", sorted(MASKED))
def test_in_float_as_in_double(name: str) -> None:
    single, double = (run("J", compiled(name, t), name, d, seeds(name)) for t, d in (("float", "f4"), ("double", "f8")))
    for got, want in zip(single, double, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", sorted(MASKED))
def test_forward_mode(name: str) -> None:
    """Along x and a at once, zeros in the direction included; the product with the seed is that of the reverse."""
    kernel, seed = compiled(name, "double"), seeds(name)
    y, x, a, n = arguments(name, "f8")
    direction = np.resize(np.array([0.0, 1.0, -0.5]), x.size), np.resize(np.array([1.0, 0.0, 0.25, -2.0]), x.size)
    t_y = np.zeros_like(y)
    kg.jvp(kernel, "y, x, a")[1, block_of(name)](y, x, a, n, t_y, *direction)
    d_x, d_a = run("J", kernel, name, "f8", seed)
    assert np.isfinite(t_y).all()
    np.testing.assert_allclose(t_y @ seed, d_x @ direction[0] + d_a @ direction[1], rtol=1e-9)


# ---- zero seeds, and infinities in memory ---------------------------------------------------------------------------

PRODUCT = (
    "int i = threadIdx.x; if (i >= n) return; T s = 0; for (int k = 0; k < n; k++) s += x[i * n + k] * a[k]; y[i] = s;"
)
SQUARE = (
    "__shared__ T A[4][4], B[4][4]; int i = threadIdx.y, j = threadIdx.x; A[i][j] = x[i * n + j];"
    " B[i][j] = a[i * n + j]; __syncthreads(); T s = 0;"
    " for (int k = 0; k < 4; k++) s += A[i][k] * B[k][j]; y[i * n + j] = s;"
)
WINDOW = (
    "int i = blockIdx.x * blockDim.x + threadIdx.x; T s = 0;"
    " for (int k = 0; k < 11; k++) s += x[i + k] * a[k]; if (i < n) y[i] = s;"
)


def plain(text: str) -> Any:
    body = text.replace("T ", "double ")
    return kg.compile(f"__global__ void k(double *y, const double *x, const double *a, int n) {{ {body} }}")["k"]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("primal", [True, False])
def test_a_zero_seed_in_sums_of_products(primal: bool, deterministic: bool) -> None:
    """Row 1 is infinite and has no seed; nor has column 2 of the product of tiles, where that matrix is NaN."""
    x, a, y = np.arange(1.0, 17).reshape(4, 4), np.linspace(-1, 1, 4), np.zeros(4)
    x[1] = np.inf
    d_y, d_x, d_a = np.array([1.0, 0, 2, 3]), np.zeros_like(x), np.zeros(4)
    kg.gradient(plain(PRODUCT), "y, x, a", primal=primal, deterministic=deterministic)[1, 4](y, x, a, 4, d_y, d_x, d_a)
    np.testing.assert_allclose(d_x, np.outer([1.0, 0, 2, 3], a))
    np.testing.assert_allclose(d_a, x[0] + 2 * x[2] + 3 * x[3])


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_zero_seed_in_tiles(deterministic: bool) -> None:
    x, a, y = np.arange(1.0, 17).reshape(4, 4), np.linspace(-1, 1, 16).reshape(4, 4), np.zeros((4, 4))
    x[1], a[:, 2] = np.inf, np.nan
    seed = np.arange(16.0).reshape(4, 4) + 1
    seed[1], seed[:, 2] = 0, 0
    d_x, d_a = np.zeros_like(x), np.zeros_like(a)
    gradient = kg.gradient(plain(SQUARE), "y, x, a", deterministic=deterministic)
    gradient[1, (4, 4)](y, x, a, 4, seed.copy(), d_x, d_a)
    known = [np.where(np.isfinite(m), m, 0) for m in (x, a)]
    np.testing.assert_allclose(d_x, seed @ known[1].T)
    np.testing.assert_allclose(d_a, known[0].T @ seed)


@pytest.mark.parametrize("n", [40, 3000])
@pytest.mark.parametrize(
    "settings", [{}, {"primal": False, "keep": "y", "assign": "x"}, {"deterministic": True}], ids=str
)
def test_a_zero_seed_in_windows(n: int, settings: dict[str, Any]) -> None:
    """Long sums in straight code, where they are gathered."""
    rng = np.random.default_rng(4)
    x, a, y = rng.random(n + 16), rng.random(11), np.zeros(n)
    a[4] = np.nan
    seed = np.zeros(n)
    seed[7] = 1.0
    want = np.zeros_like(x)
    want[7:18] += a
    d_x, d_a = np.zeros_like(x), np.zeros(11)
    gradient = kg.gradient(plain(WINDOW), "y, x, a", **settings)
    gradient[-(-n // 64), 64](y, x, a, n, seed.copy(), d_x, d_a)
    np.testing.assert_allclose(d_x, want)
    np.testing.assert_allclose(d_a, x[7:18])


@pytest.mark.parametrize("form", ["J", "R"])
@pytest.mark.parametrize("name", ["product", "bodies", "convolution"])
def test_zero_seeds_in_loops_for_a_gpu(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanged, in rings of lanes, and in windows."""
    monkeypatch.setattr(Gradient, "ways", staticmethod(lambda *_: Ways(on_gpu=True)))
    problem = {"product": product, "bodies": bodies, "convolution": convolution}[name]({"product": 64}.get(name, 512))
    kernel = kg.load(SOURCE)[problem.kernel]
    names = [*problem.outputs, *problem.inputs]
    check(problem, kg.gradient(kernel, names, **({"primal": False} if form == "R" else {})))


STEPS = {
    "scaled and added to": "double v = a[0]; for (int k = 0; k < n; k++) { v = v * x[k] + x[k]; y[k] = v * v; }"
    " y[n] = v;",
    "added to before it is scaled": (
        "double v = a[0], w = 1; for (int k = 0; k < n; k++) { w = w * x[k] * v; v = sin(v) * x[k] + w; y[k] = w; }"
        " y[n] = v;"
    ),
    "in an inner loop": (
        "double v = a[0]; for (int k = 0; k < n; k++) { for (int j = 0; j < 2; j++) v *= x[k]; y[k] = v; v += x[k]; }"
        " y[n] = v;"
    ),
}


@pytest.mark.parametrize("name", sorted(STEPS))
def test_an_adjoint_that_is_zero_when_the_loop_begins(name: str) -> None:
    kernel = plain(STEPS[name])
    x, a, seed = np.array([0.7, 1.2, -0.4]), np.array([0.9]), np.array([1.0, -2.0, 0.5, 0.0])
    d_x, d_a = np.zeros(3), np.zeros(1)
    kg.gradient(kernel, "y, x, a")[1, 1](np.zeros(4), x, a, 3, seed.copy(), d_x, d_a)
    for direction in (*np.eye(4), np.array([0.0, 1.0, 1.0, 0.0])):
        t_y = np.zeros(4)
        kg.jvp(kernel, "y, x, a")[1, 1](np.zeros(4), x, a, 3, t_y, direction[:3].copy(), direction[3:].copy())
        ends = [np.zeros(4), np.zeros(4)]
        for out, h in zip(ends, (1e-6, -1e-6), strict=True):
            kernel[1, 1](out, x + h * direction[:3], a + h * direction[3:], 3)
        want = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(t_y, want, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(d_x @ direction[:3] + d_a @ direction[3:], want @ seed, rtol=1e-6, atol=1e-7)


# ---- what is no number stays so -------------------------------------------------------------------------------------

REAL = {
    "nan loaded": ("y[i] = a[i] * x[i];", np.nan, np.nan),
    "nan made": ("y[i] = sqrt(x[i]) * a[i];", -1.0, np.nan),
    "infinite": ("y[i] = sqrt(x[i]) * a[i];", 0.0, np.inf),
    "both": ("double s = sqrt(x[i]); y[i] = s + a[i] * s;", 0.0, np.inf),
    "in a sum": ("double s = 0; for (int k = 0; k < 4; k++) s += a[i] * x[i] * k; y[i] = s;", np.nan, np.nan),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_what_is_not_masked_is_seen(name: str) -> None:
    body, at, want = REAL[name]
    kernel = plain(f"int i = threadIdx.x; {body}")
    x, a = np.array([at, 2.0]), np.array([1.5, 0.5])
    wrong = "a" if want != want else "x"
    d = {"x": np.zeros(2), "a": np.zeros(2)}
    kg.gradient(kernel, "y, x, a")[1, 2](np.zeros(2), x, a, 2, np.ones(2), d["x"], d["a"])
    np.testing.assert_equal(d[wrong][0], want)
    assert np.isfinite(d["x"][1]) and np.isfinite(d["a"][1])
    t_y = np.zeros(2)
    kg.jvp(kernel, "y, x, a")[1, 2](np.zeros(2), x, a, 2, t_y, *(np.full(2, float(n == wrong)) for n in ("x", "a")))
    np.testing.assert_equal(t_y[0], want)


# ---- the convention's own cases -------------------------------------------------------------------------------------


def slope(body: str, at: float, type: str = "double") -> tuple[float, float]:
    """In reverse, and in forward mode."""
    kernel = kg.compile(f"__global__ void k({type} *y, const {type} *x) {{ {body} }}")["k"]
    dtype = {"double": "f8", "float": "f4"}[type]
    (y, d_x, t_y), (d_y, t_x) = np.zeros((3, 1), dtype), np.ones((2, 1), dtype)
    x = np.array([at], dtype)
    kg.gradient(kernel, "y, x")[1, 1](y, x, d_y, d_x)
    kg.jvp(kernel, "y, x")[1, 1](y, x, t_y, t_x)
    return float(d_x[0]), float(t_y[0])


@pytest.mark.parametrize(
    ("body", "at", "want"),
    [
        ("y[0] = 1 / (1 + expf(-x[0]));", -100.0, 0.0),
        ("float e = expf(-x[0]); y[0] = 1 / (1 + e * e);", -100.0, 0.0),
        ("float e = expf(-x[0]); y[0] = x[0] / (1 + e);", -100.0, 0.0),
        ("y[0] = fminf(3 * rsqrtf(x[0]), 10.0f);", 0.0, 0.0),
        ("y[0] = fmaxf(logf(x[0]), -5.0f);", 0.0, 0.0),
        ("y[0] = 0.0f * sqrtf(x[0]);", 0.0, 0.0),
        ("y[0] = sqrtf(x[0]) * sqrtf(x[0]);", 0.0, 0.0),  # what the convention cannot help: it is 1
        ("y[0] = fabsf(sqrtf(x[0]));", 0.0, 0.0),
    ],
)
def test_zero_partials(body: str, at: float, want: float) -> None:
    assert slope(body, at, "float") == (want, want)


def test_second_derivatives_where_adjoints_are_zero() -> None:
    """y = (x - 1)^2 * x: at 1 the adjoint of the square's argument is 0, and its tangent is not."""
    kernel = kg.compile(
        "__global__ void k(double *y, const double *x) { double v = x[0] - 1, w = v + 0 * x[0];"
        " y[0] = (w * w + w * 0) * x[0]; }"
    )["k"]
    gradient = kg.gradient(kernel, "y, x")
    second = kg.jvp(gradient, "y, x, d_y, d_x")
    x = np.array([1.0])
    y, d_y, d_x, t_y, t_d_y, t_d_x = (np.array([v]) for v in (0.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    second[1, 1](y, x, d_y, d_x, t_y, np.ones(1), t_d_y, t_d_x)
    np.testing.assert_allclose(t_d_x, 2.0)
    zero, t_zero, t_d_x = np.zeros(1), np.ones(1), np.zeros(1)
    second[1, 1](y, np.array([3.0]), zero, np.zeros(1), t_y, np.zeros(1), t_zero, t_d_x)
    np.testing.assert_allclose(t_d_x, 2 * 2.0 * 3 + 4)


def test_behind_taped_pointers() -> None:
    """What comes out of memory that a pointer from the tape leads to is an adjoint like others."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, const double *a, int n) {
        int i = threadIdx.x;
        double r = a[i] * (a[0] / x[i]), s = 0.5, b[2] = {0, 0}, *p = b, *q = b + 1;
        if (x[i] != 0) s += r;
        for (int k = 0; k < n; k++) { *p = s; double *o = p; p = q; q = o; }
        y[i] = b[0] + b[1];
    }""")["k"]
    x, a, d_x, d_a = np.array([0.0, 2.0]), np.array([3.0, 5.0]), np.zeros(2), np.zeros(2)
    kg.gradient(kernel, "y, x, a")[1, 2](np.zeros(2), x, a, 3, np.ones(2), d_x, d_a)
    assert d_x.tolist() == [0, -7.5] and d_a.tolist() == [5, 3]


def test_a_test_in_one_branch_says_nothing_in_the_other() -> None:
    """So many guards that those before the branch are tested inside of it."""
    kernel = kg.compile("""__global__ void k(double *y, const double *x, int m) {
        int i = threadIdx.x;
        float b = 1 / (m > i ? y[2 * i] * x[1] : y[2 * i + 1]);
        y[2 * i] = cos(0.1 * pow(1 / hypot(1.0, 1.0 + sin(b)), 2.0));
    }""")["k"]
    random = np.random.default_rng(3)
    y, x = random.uniform(0.5, 1.5, 8), random.uniform(0.5, 1.5, 2)
    assert kg.check_gradient(kernel, "y, x", 1, 4, (y, x, 2)).ok
