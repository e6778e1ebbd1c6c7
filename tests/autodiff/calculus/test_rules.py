"""The derivative table: every row against mpmath, its edges, what it needs, and that no function is forgotten."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from kernelgrad.autodiff.calculus.rules import RULES, Domain, Rule, Zero, rule_for, scaled
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.functions import GIVEN, ONLY_IN_REVERSE, PURE
from kernelgrad.ir.ops import Block, Function, Module, Param, Value
from kernelgrad.ir.types import F32, F64, I32, Pointer, Scalar
from kernelgrad.ir.verifier import verify
from kernelgrad.runtime.cpu import compile_cpu
from kernelgrad.runtime.launch import BoundArguments, LaunchConfig

M = mpmath
DTYPES: dict[Scalar, Any] = {F32: np.float32, F64: np.float64}

# Functions of floats with a float result that have no derivative: forward and reverse mode refuse them.
REFUSED = {"bitcast"}
# select is control flow; `address` gives an integer.
NOT_FUNCTIONS_OF_FLOATS = {
    "select",
    "masked",
    "address",
    "sad",
    "dp4a",
    "dp2a_lo",
    "dp2a_hi",
    "ilogb",
    "frexp_exponent",
}


pytestmark = pytest.mark.usefixtures("cache_of_its_own")


# ---- completeness --------------------------------------------------------------------------------------------------


def test_every_function_of_floats_has_a_row_or_is_refused() -> None:
    of_floats = {
        name for name, f in PURE.items() if f.operands in ("number", "float", "any") and f.result in ("same", "given")
    }
    assert of_floats - NOT_FUNCTIONS_OF_FLOATS - ONLY_IN_REVERSE - GIVEN == set(RULES) | REFUSED
    assert all(rule_for(name) is None for name in REFUSED)


def test_rows_name_known_functions_and_a_domain_for_each_argument() -> None:
    for rule in RULES.values():
        assert len(rule.domain) == len(rule.formulas) == PURE[rule.name].arity, rule.name


# ---- evaluating rows ------------------------------------------------------------------------------------------------

ROWS_PER_KERNEL = 12


@cache
def kernel(names: tuple[str, ...], type: Scalar, chained: bool) -> Any:
    """out[(row, k, i)] = derivative by argument k at sample i (adjoint times it if `chained`), from x[(row, k, i)]."""
    b = Builder()
    pointer = Pointer(type, "global")
    x, adjoint, out, n = (Value(t, s) for t, s in ((pointer, "x"), (pointer, "adj"), (pointer, "out"), (I32, "n")))
    i = b.convert(b.builtin("thread_idx"), I32)
    seed = b.load(b.offset(adjoint, i))
    slot = 0
    for rule in map(RULES.__getitem__, names):
        args, places = [], []
        for domain in rule.domain:
            places.append(b.apply("add", i, b.apply("mul", n, b.constant(slot, I32))))
            loaded = b.load(b.offset(x, places[-1]))
            args.append(b.convert(loaded, I32) if domain.integer else loaded)
            slot += 1
        result = b.apply(rule.name, *args, type=type)
        for k, place in enumerate(places):
            needs = rule.needs(k)
            given = tuple(a if j in needs.args else None for j, a in enumerate(args))
            known = result if needs.result else None
            value = scaled(b, seed, rule, k, known, given) if chained else rule.partial(b, k, known, given, type)
            b.store(b.offset(out, place), b.constant(0.0, type) if value is None else value)
    params = tuple(Param(v, "") for v in (x, adjoint, out, n))
    module = Module({"k": Function("k", "kernel", params, Block((), tuple(b.ops), ()))})
    verify(module, "test")
    return compile_cpu(module, "k")


def batched(names: Iterable[str], size: int) -> Iterator[tuple[str, ...]]:
    every = tuple(names)
    return (every[k : k + size] for k in range(0, len(every), size))


def evaluate(
    samples: dict[str, list[tuple[float, ...]]], type: Scalar, adjoint: float | None = None
) -> dict[str, np.ndarray]:
    """The derivatives of the functions at their samples: [k, sample]. Times the adjoint, where one is given."""
    found: dict[str, np.ndarray] = {}
    for names in batched(samples, ROWS_PER_KERNEL):
        count = max(len(samples[name]) for name in names)
        columns = []
        for name in names:
            rows = (samples[name] * count)[:count]
            columns += [[row[k] for row in rows] for k in range(len(rows[0]))]
        with np.errstate(over="ignore"):
            x = np.array(columns, DTYPES[type])
        seeds = np.full(count, 0.0 if adjoint is None else adjoint, DTYPES[type])
        out = np.full_like(x, 77.0)
        packed = struct.pack("<QQQi", x.ctypes.data, seeds.ctypes.data, out.ctypes.data, count)
        executable = kernel(names, type, adjoint is not None)
        executable.launch(LaunchConfig((1, 1, 1), (count, 1, 1)), BoundArguments(packed, (), (x, seeds, out)))
        row = 0
        for name in names:
            arity = len(samples[name][0])
            found[name] = out[row : row + arity, : len(samples[name])]
            row += arity
    return found


# ---- against mpmath -------------------------------------------------------------------------------------------------


def _whole(x: Any) -> Any:
    return M.sign(x) * M.floor(abs(x))


def _erfcinv(z: Any) -> Any:
    return M.erfinv(1 - z)


REFERENCE: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "fma": lambda x, y, z: x * y + z,
    "neg": lambda x: -x,
    "abs": abs,
    "min": min,
    "max": max,
    "saturate": lambda x: min(max(x, M.mpf(0)), M.mpf(1)),
    "fdim": lambda x, y: max(x - y, M.mpf(0)),
    "copysign": lambda x, y: abs(x) * M.sign(y),
    "fmod": lambda x, y: x - y * _whole(x / y),
    "remainder": lambda x, y: x - y * M.nint(x / y),
    "nextafter": lambda x, y: x,
    "convert": lambda x: x,
    "sqrt": M.sqrt,
    "rsqrt": lambda x: 1 / M.sqrt(x),
    "cbrt": lambda x: M.sign(x) * M.cbrt(abs(x)),
    "rcbrt": lambda x: M.sign(x) / M.cbrt(abs(x)),
    "rcp": lambda x: 1 / x,
    "pow": M.power,
    "powi": lambda x, n: x ** int(n),
    "ldexp": lambda x, n: x * M.mpf(2) ** int(n),
    "frexp_mantissa": lambda x: x / M.mpf(2) ** M.frexp(x)[1],
    "exp": M.exp,
    "exp2": lambda x: M.power(2, x),
    "exp10": lambda x: M.power(10, x),
    "expm1": lambda x: M.exp(x) - 1,
    "log": M.log,
    "log2": lambda x: M.log(x) / M.log(2),
    "log10": lambda x: M.log(x) / M.log(10),
    "log1p": lambda x: M.log(1 + x),
    "sin": M.sin,
    "cos": M.cos,
    "tan": M.tan,
    "sinpi": lambda x: M.sin(M.pi * x),
    "cospi": lambda x: M.cos(M.pi * x),
    "tanpi": lambda x: M.tan(M.pi * x),
    "asin": M.asin,
    "acos": M.acos,
    "atan": M.atan,
    "atan2": M.atan2,
    "sinh": M.sinh,
    "cosh": M.cosh,
    "tanh": M.tanh,
    "asinh": M.asinh,
    "acosh": M.acosh,
    "atanh": M.atanh,
    "erf": M.erf,
    "erfc": M.erfc,
    "erfinv": M.erfinv,
    "erfcinv": _erfcinv,
    "erfcx": lambda x: M.exp(x * x) * M.erfc(x),
    "normcdf": lambda x: M.erfc(-x / M.sqrt(2)) / 2,
    "normcdfinv": lambda p: -M.sqrt(2) * _erfcinv(2 * p),
    "lgamma": lambda x: M.log(abs(M.gamma(x))),
    "tgamma": M.gamma,
    "j0": lambda x: M.besselj(0, x),
    "j1": lambda x: M.besselj(1, x),
    "jn": lambda n, x: M.besselj(int(n), x),
    "y0": lambda x: M.bessely(0, x),
    "y1": lambda x: M.bessely(1, x),
    "yn": lambda n, x: M.bessely(int(n), x),
    "cyl_bessel_i0": lambda x: M.besseli(0, x),
    "cyl_bessel_i1": lambda x: M.besseli(1, x),
    "hypot": M.hypot,
    "rhypot": lambda x, y: 1 / M.hypot(x, y),
    **dict.fromkeys(("norm3d", "norm4d"), lambda *args: M.sqrt(sum(x * x for x in args))),
    **dict.fromkeys(("rnorm3d", "rnorm4d"), lambda *args: 1 / M.sqrt(sum(x * x for x in args))),
}


def reference(name: str) -> Callable[..., Any]:
    """Fast and directed forms are differentiated as the exact ones."""
    base = name.removeprefix("fast_")
    return REFERENCE[base.rpartition("_")[0] if base.endswith(("_rd", "_ru", "_rz", "_rn")) else base]


# None of them is a kink, a jump or a pole of any function.
_POINTS = [-30.3, -7.2, -3.7, -1.1, -0.6, -0.3, -1e-3, 1e-3, 0.27, 0.57, 0.9, 1.0625, 2.3, 9.2, 12.4, 30.1]
_INTEGERS = [0, 1, 2, 3, 4, 5, 7, 9, 14, 18, -1, -2, -5]


def points(domain: Domain, count: int, shift: int) -> list[float]:
    """`count` numbers of the domain, in an order that differs from argument to argument."""
    pool: list[float] = [p for p in (_INTEGERS if domain.integer else _POINTS) if domain.low < p < domain.high]
    if domain.integer:
        pool = [p for p in _INTEGERS if domain.low <= p <= domain.high]
    if domain.high <= 2:
        pool += [domain.high * f for f in (0.1, 0.7, 0.99)]
    return [pool[(k * (shift + 1) + shift) % len(pool)] for k in range(count)]


def samples(rule: Rule, type: Scalar) -> list[tuple[float, ...]]:
    count = len(_POINTS) if len(rule.domain) == 1 else 2 * len(_POINTS)
    columns = [points(domain, count, k) for k, domain in enumerate(rule.domain)]
    rows = [tuple(float(DTYPES[type](v)) for v in row) for row in zip(*columns, strict=True)]
    return [row for row in rows if len(set(row)) == len(row)]  # equal arguments are a tie of min, max and fdim


def derivative(name: str, row: tuple[float, ...], k: int) -> Any:
    function = reference(name)
    with mpmath.workdps(250 if name == "normcdf" else 50):  # far out it is 1 but for the two hundredth digit
        at = [mpmath.mpf(v) for v in row]
        return mpmath.diff(lambda x: function(*at[:k], x, *at[k + 1 :]), at[k], h=mpmath.mpf(10) ** -20)


# Where the formula is not accurate in the last digits: a small result, or a difference that cancels.
LOOSE = {
    "erfcx": 300.0,
    "lgamma": 200.0,
    "tgamma": 200.0,
    "jn": 50.0,
    "j1": 50.0,
    "yn": 50.0,
    "tanpi": 100.0,
    "pow": 10.0,
}
LOOSE |= dict.fromkeys(("erfinv", "erfcinv", "normcdfinv", "cyl_bessel_i1", "acosh", "asin", "acos"), 100.0)
# The derivative nearly vanishes where it is subtracted from 1: accurate to the last digit of 1.
ABSOLUTE = {"lgamma", "j0", "j1", "jn", "y0", "y1", "yn", "sinpi", "cospi"}
# exp(x*x) and exp(x) pass on the rounding of their arguments.
OF_SQUARES = {"erf", "erfc", "erfcx", "normcdf"}

DIFFERENTIABLE = {name: rule for name, rule in RULES.items() if not isinstance(rule, Zero)}


@cache
def computed(type: Scalar) -> dict[str, np.ndarray]:
    return evaluate({name: samples(rule, type) for name, rule in DIFFERENTIABLE.items()}, type)


@cache
def chained(type: Scalar) -> dict[str, np.ndarray]:
    return evaluate({name: samples(rule, type) for name, rule in DIFFERENTIABLE.items()}, type, adjoint=-2.5)


@pytest.mark.parametrize("type", [F64, F32], ids=str)
@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_row(name: str, type: Scalar) -> None:
    rule, info = RULES[name], np.finfo(DTYPES[type])
    tolerance = float(info.eps) * 8 * LOOSE.get(name.removeprefix("fast_"), 1.0)
    for i, row in enumerate(samples(rule, type)):
        grows = 1 + row[0] ** 2 if name in OF_SQUARES else 1.0
        for k, domain in enumerate(rule.domain):
            got = computed(type)[name][k, i]
            if domain.integer or rule.is_zero(k):
                assert got == 0
                continue
            want = derivative(name, row, k)
            if abs(want) > info.max:
                assert math.isinf(got)
                continue
            least = 1.0 if name in ABSOLUTE else 0.0
            bound = tolerance * grows * max(abs(want), least) + float(info.smallest_normal)
            assert abs(mpmath.mpf(float(got)) - want) <= bound, f"d{name}{row} by argument {k}: {got!r}, not {want}"


@pytest.mark.parametrize("type", [F64, F32], ids=str)
@pytest.mark.parametrize("name", sorted(DIFFERENTIABLE))
def test_chain_rule_multiplies_by_the_adjoint(name: str, type: Scalar) -> None:
    with np.errstate(over="ignore"):
        want = computed(type)[name] * DTYPES[type](-2.5)
    np.testing.assert_allclose(chained(type)[name], want, rtol=4 * float(np.finfo(DTYPES[type]).eps))


# ---- edges ----------------------------------------------------------------------------------------------------------

INF, NAN = math.inf, math.nan

# Function, arguments, partials: what the conventions at the top of rules.py say, and limits at the ends of domains.
EDGES: list[tuple[str, tuple[float, ...], tuple[float, ...]]] = [
    ("abs", (0.0,), (0.0,)),
    ("abs", (-0.0,), (0.0,)),
    ("max", (2.0, 2.0), (1.0, 0.0)),
    ("min", (2.0, 2.0), (1.0, 0.0)),
    ("max", (NAN, 2.0), (0.0, 1.0)),
    ("max", (2.0, NAN), (1.0, 0.0)),
    ("min", (NAN, 2.0), (0.0, 1.0)),
    ("min", (2.0, NAN), (1.0, 0.0)),
    ("saturate", (0.0,), (1.0,)),
    ("saturate", (1.0,), (1.0,)),
    ("saturate", (NAN,), (0.0,)),
    ("fdim", (3.0, 3.0), (0.0, 0.0)),
    ("copysign", (0.0, -1.0), (0.0, 0.0)),
    ("copysign", (-2.0, -1.0), (1.0, 0.0)),
    ("copysign", (2.0, -0.0), (-1.0, 0.0)),
    ("fmod", (6.0, 2.0), (1.0, -3.0)),
    ("fmod", (-7.5, 2.0), (1.0, 3.0)),
    ("remainder", (7.5, 2.0), (1.0, -4.0)),
    ("sqrt", (0.0,), (INF,)),
    ("cbrt", (0.0,), (INF,)),
    ("rsqrt", (0.0,), (-INF,)),
    ("log", (0.0,), (INF,)),
    ("asin", (1.0,), (INF,)),
    ("acos", (-1.0,), (-INF,)),
    ("acosh", (1.0,), (INF,)),
    ("atanh", (1.0,), (INF,)),
    ("erfinv", (1.0,), (INF,)),
    ("hypot", (0.0, 0.0), (0.0, 0.0)),
    ("hypot", (0.0, 2.0), (0.0, 1.0)),
    ("norm3d", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    ("norm4d", (0.0, 0.0, 0.0, -3.0), (0.0, 0.0, 0.0, -1.0)),
    ("rhypot", (0.0, 0.0), (0.0, 0.0)),
    ("rnorm3d", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    ("rnorm4d", (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)),
    ("atan2", (0.0, 0.0), (0.0, 0.0)),
    ("atan2", (0.0, -2.0), (-0.5, 0.0)),
    ("atan2", (1e30, 0.0), (0.0, -1e-30)),
    ("asinh", (1e30,), (1e-30,)),
    ("acosh", (1e30,), (1e-30,)),
    ("atan", (1e30,), (1e-60,)),
    ("pow", (0.0, 0.0), (0.0, 0.0)),
    ("pow", (0.0, 1.0), (1.0, 0.0)),
    ("pow", (0.0, 2.0), (0.0, 0.0)),
    ("pow", (0.0, 0.5), (INF, 0.0)),
    ("pow", (-2.0, 3.0), (12.0, 0.0)),
    ("pow", (-2.0, -1.0), (-0.25, 0.0)),
    ("pow", (3.0, 0.0), (0.0, math.log(3.0))),
    ("powi", (0.0, 0.0), (0.0, 0.0)),
    ("powi", (0.0, 1.0), (1.0, 0.0)),
    ("powi", (-3.0, 2.0), (-6.0, 0.0)),
    ("ldexp", (3.0, 4.0), (16.0, 0.0)),
    ("frexp_mantissa", (0.0,), (1.0,)),
    ("j1", (0.0,), (0.5,)),
    ("jn", (0.0, 0.0), (0.0, 0.0)),
    ("jn", (1.0, 0.0), (0.0, 0.5)),
    ("cyl_bessel_i1", (0.0,), (0.5,)),
    ("erfcx", (1e6,), (-1e-12 / math.sqrt(math.pi),)),
    ("expm1", (-50.0,), (math.exp(-50.0),)),
    ("nextafter", (1.0, 2.0), (1.0, 0.0)),
    # Where the result is all that is left of the argument, and the argument of the result.
    ("sqrt", (-0.0,), (INF,)),
    ("tanh", (-20.0,), (1 / math.cosh(20.0) ** 2,)),
    ("tanh", (42.0,), (1 / math.cosh(42.0) ** 2,)),
    ("tanh", (INF,), (0.0,)),
    ("tanh", (-3e38,), (0.0,)),
    ("cyl_bessel_i1", (1e-44,), (0.5,)),
    ("cyl_bessel_i1", (-800.0,), (INF,)),
    ("y1", (0.0,), (INF,)),
    ("yn", (2.0, 0.0), (0.0, INF)),
    # Exponents below which there is no odd float; for doubles the power is 0 or infinite.
    ("pow", (-1.0, 33554432.0), (-33554432.0, 0.0)),
    ("pow", (-1.0, 2.0**54), (-(2.0**54), 0.0)),
    ("pow", (-1.0, 16777218.0), (-16777218.0, 0.0)),
    ("pow", (-1.0, -33554432.0), (33554432.0, 0.0)),
    ("pow", (-1.0, 16777215.0), (16777215.0, 0.0)),
    ("powi", (-1.0, 16777216.0), (-16777216.0, 0.0)),
    # Infinite arguments: limits.
    ("pow", (INF, -2.0), (0.0, 0.0)),
    ("pow", (INF, 2.0), (INF, INF)),
    ("pow", (INF, 0.5), (0.0, INF)),
    ("pow", (-INF, 2.0), (-INF, 0.0)),
    ("pow", (0.5, INF), (0.0, 0.0)),
    ("pow", (-0.5, INF), (0.0, 0.0)),
    ("pow", (0.5, -INF), (-INF, -INF)),
    ("pow", (2.0, INF), (INF, INF)),
    ("pow", (2.0, -INF), (0.0, 0.0)),
    ("pow", (INF, -INF), (0.0, 0.0)),
    ("pow", (0.0, INF), (0.0, 0.0)),
    ("hypot", (INF, 1.0), (1.0, 0.0)),
    ("hypot", (3.0, -INF), (0.0, -1.0)),
    ("hypot", (1e30, 1e30), (0.5**0.5, 0.5**0.5)),
    ("hypot", (1e-30, -1e-30), (0.5**0.5, -(0.5**0.5))),
    ("norm3d", (1.0, -INF, 2.0), (0.0, -1.0, 0.0)),
    ("norm4d", (1.0, 2.0, 3.0, INF), (0.0, 0.0, 0.0, 1.0)),
    ("rhypot", (INF, 1.0), (0.0, 0.0)),
    ("rhypot", (1.0, -INF), (0.0, 0.0)),
    ("rhypot", (3e12, 4e12), (-2.4e-26, -3.2e-26)),
    ("rhypot", (-1e-13, 0.0), (1e26, 0.0)),
    ("rnorm3d", (0.0, -INF, 1.0), (0.0, 0.0, 0.0)),
    ("atan2", (INF, 1.0), (0.0, 0.0)),
    ("atan2", (1.0, -INF), (0.0, 0.0)),
    ("atan2", (-INF, INF), (0.0, 0.0)),
    ("atan2", (1e25, 1e25), (5e-26, -5e-26)),
    ("atan2", (1e-25, -1e-25), (-5e24, -5e24)),
]  # fmt: skip


@cache
def at_edges(type: Scalar) -> dict[str, np.ndarray]:
    return evaluate({name: [row for n, row, _ in EDGES if n == name] for name, _, _ in EDGES}, type)


@pytest.mark.parametrize("type", [F64, F32], ids=str)
@pytest.mark.parametrize(("name", "row", "want"), EDGES, ids=lambda v: str(v).replace(" ", ""))
def test_edge(name: str, row: tuple[float, ...], want: tuple[float, ...], type: Scalar) -> None:
    i = [repr(r) for n, r, _ in EDGES if n == name].index(repr(row))
    np.testing.assert_allclose(at_edges(type)[name][:, i], want, rtol=1e-6, atol=1e-37 if type == F32 else 1e-300)


_AWKWARD = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.0, 1e-45, 1e-30, -1e-30, 1e30, -1e30, 3e38, 100.0, -100.0]


@pytest.mark.parametrize("type", [F64, F32], ids=str)
def test_a_zero_adjoint_contributes_exactly_zero(type: Scalar) -> None:
    """At every finite argument, in the domain or not: rows that need a guard for it are marked."""
    extremes = [*_AWKWARD, 1e300, -1e300, 5e-324] if type == F64 else _AWKWARD

    def rows(rule: Rule) -> list[tuple[float, ...]]:
        columns = [
            [float(v) for v in _INTEGERS] if domain.integer else extremes[k:] + extremes[:k]
            for k, domain in enumerate(rule.domain)
        ]
        first = [(columns[0][i % len(columns[0])], *(c[(i // 2) % len(c)] for c in columns[1:])) for i in range(40)]
        return [*first, *((v,) * len(columns) for v in (0.0, 1.0, 2.0))]

    found = evaluate({name: rows(rule) for name, rule in DIFFERENTIABLE.items()}, type, adjoint=0.0)
    wrong = {name: rows(RULES[name])[np.argwhere(got != 0)[0][1]] for name, got in found.items() if np.any(got != 0)}
    assert not wrong
