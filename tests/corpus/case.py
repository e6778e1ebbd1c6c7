"""What a corpus case is: a small kernel, its arguments, and what it must leave in them, said in NumPy."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Maker = Callable[[np.random.Generator], Any]
Expected = Callable[..., Any]

I8, I16, I32, I64 = np.int8, np.int16, np.int32, np.int64
U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
F16, F32, F64 = np.float16, np.float32, np.float64

_RTOL = {"e": 2e-3, "f": 2e-5, "d": 1e-12}
_ATOL = {"e": 1e-3, "f": 1e-6, "d": 1e-13}


@dataclass(frozen=True)
class Case:
    """One kernel. Written arrays are its first parameters; `expected` gives their contents after the launch."""

    name: str
    source: str
    kernel: str
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    make_args: Maker
    expected: Expected
    shared: int = 0
    exact: bool = False
    rtol: float | None = None
    atol: float | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    races: bool = False  # conflicting accesses on purpose: check mode reports them
    skip: frozenset[str] = frozenset()  # runners the case is not for

    def args(self) -> list[Any]:
        result: list[Any] = self.make_args(np.random.default_rng(7))
        return result

    def want(self, args: Sequence[Any]) -> list[Any]:
        """All arguments after the launch: the written ones as expected, the others unchanged."""
        written = self.expected(*copy.deepcopy(list(args)))
        first = list(written) if isinstance(written, tuple) else [written]
        return first + list(args[len(first) :])

    def compare(self, got: Sequence[Any], want: Sequence[Any]) -> None:
        for k, (one, other) in enumerate(zip(got, want, strict=True)):
            self._compare(f"{self.name}: argument {k}", one, other)

    def _compare(self, what: str, got: Any, want: Any) -> None:
        if isinstance(got, Mapping):
            for key in got:
                self._compare(f"{what}.{key}", got[key], want[key])
        elif isinstance(got, np.ndarray):
            self._compare_arrays(what, got, np.asarray(want))

    def _compare_arrays(self, what: str, got: npt.NDArray[Any], want: npt.NDArray[Any]) -> None:
        if got.dtype.names:
            for name in got.dtype.names:
                self._compare_arrays(f"{what}.{name}", got[name], want[name])
            return
        want = np.broadcast_to(want, got.shape).astype(got.dtype)
        if self.exact or got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, err_msg=what)
            return
        rtol = _RTOL[got.dtype.char] if self.rtol is None else self.rtol
        atol = _ATOL[got.dtype.char] if self.atol is None else self.atol
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=what)


class Theme:
    """The cases of one file. `@theme.case(source, *args)` over the function that says what is expected."""

    def __init__(self) -> None:
        module = sys._getframe(1).f_globals["__name__"]
        self.name: str = module.rpartition(".")[2]
        self.cases: list[Case] = []

    def case(
        self,
        source: str,
        *args: Any,
        kernel: str = "k",
        grid: int | tuple[int, ...] = 1,
        block: int | tuple[int, ...] = 32,
        **options: Any,
    ) -> Callable[[Expected], Expected]:
        """Arguments are values, or functions of a random generator that make one."""

        def register(expected: Expected) -> Expected:
            name = f"{self.name}.{expected.__name__}"
            assert all(c.name != name for c in self.cases), f"{name} is there twice"
            self.cases.append(Case(name, source, kernel, grid, block, _maker(args), expected, **options))
            return expected

        return register


def _maker(specs: Sequence[Any]) -> Maker:
    def make(rng: np.random.Generator) -> list[Any]:
        return [_made(spec, rng) for spec in specs]

    return make


def _made(spec: Any, rng: np.random.Generator) -> Any:
    if callable(spec):
        return spec(rng)
    if isinstance(spec, dict):
        return {key: _made(value, rng) for key, value in spec.items()}
    return copy.deepcopy(spec)


# ---- arguments


def zeros(count: int | tuple[int, ...], dtype: Any = F32) -> npt.NDArray[Any]:
    return np.zeros(count, dtype)


def full(count: int | tuple[int, ...], value: Any, dtype: Any = F32) -> npt.NDArray[Any]:
    return np.full(count, value, dtype)


def of(values: Any, dtype: Any = F32) -> npt.NDArray[Any]:
    return np.array(values, dtype)


def floats(count: int | tuple[int, ...], low: float = -2.0, high: float = 2.0, dtype: Any = F32) -> Maker:
    return lambda rng: rng.uniform(low, high, count).astype(dtype)


def ints(count: int | tuple[int, ...], low: int = -50, high: int = 50, dtype: Any = I32) -> Maker:
    return lambda rng: rng.integers(low, high, count, dtype=np.int64).astype(dtype)


def bits(count: int, dtype: Any = U32) -> Maker:
    """Every bit pattern of an integer type, at random."""
    info = np.iinfo(dtype)
    return lambda rng: rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)


def wrap(values: Any, dtype: Any) -> npt.NDArray[Any]:
    """Python integers reduced to a type of C, as a conversion there does."""
    width = np.iinfo(dtype).bits
    low = [int(v) & ((1 << width) - 1) for v in np.asarray(values, object).ravel()]
    return np.array(low, np.dtype(f"u{width // 8}")).view(dtype)
