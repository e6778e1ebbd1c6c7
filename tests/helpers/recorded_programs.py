"""Random programs of launches, copies and fills over a few buffers, some of them views of one allocation. The reference
is forward mode by hand, in NumPy: it keeps nothing, so it cannot keep the wrong thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import kernelgrad as kg

N = 12

SOURCE = r"""
#define I int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return
__global__ void square(double *y, const double *x, double a, int n) { I; y[i] = a * x[i] * x[i] + 0.1; }
__global__ void mix(double *y, const double *x, const double *z, int n) { I; y[i] = 0.5 * x[i] - 0.25 * z[i]; }
__global__ void product(double *y, const double *x, const double *z, int n) { I; y[i] = x[i] * z[i]; }
__global__ void sine(double *x, int n) { I; x[i] = sin(x[i]); }
__global__ void add_to(double *y, const double *x, double c, int n) { I; y[i] += c * x[i]; }
__global__ void neighbours(double *y, const double *x, int n) { I; y[i] = 0.3 * x[i] * x[(i + 1) % n]; }
__global__ void total(double *s, const double *x, int n) { I; atomicAdd(s, 0.1 * x[i] * x[i]); }
__global__ void spread(double *y, const double *s, const double *x, int n) { I; y[i] = s[0] * 0.05 + x[i] * 0.5; }
__global__ void every_other(double *y, const double *x, int n) { I; if (i % 2) y[i] = x[i] * x[i]; }
__global__ void on_the_way(double *u, double *y, int n) { I; u[i] = sin(u[i]); y[i] = u[i] * u[i]; u[i] = u[i] * y[i]; }
__global__ void wave(double *y, const double *x, double a, int n) { I; y[i] = sin(a * x[i]); }
__global__ void halo(double *y, const double *x, int n) { I; y[i - 1] = 0.4 * x[i - 1] * x[i + 1]; }
__global__ void turn(int *k, int n) { I; k[i] = (k[i] * 5 + 1) % n; }
__global__ void gather(double *y, const double *x, const int *k, int n) { I; y[i] = x[k[i]] * x[k[i]]; }
__global__ void shrink(double *y, const double *x, int n) {
    I; double v = x[i]; while (v * v > 0.3) v *= 0.8; y[i] = v * x[i]; }
__global__ void counted(double *y, const double *x, int *c, int n) {
    I; y[i] = x[i] * x[i] * (atomicAdd(c, 1) < 0 ? 2 : 1); }
"""


@cache
def kernels() -> kg.Module:
    return kg.compile(SOURCE)


@cache
def derived(name: str) -> Any:
    """Of `square`: as a step, it maps arguments and adjoints, or arguments and tangents."""
    return kg.gradient(kernels()["square"], "y, x") if name == "gradient" else kg.jvp(kernels()["square"], "y, x")


@kg.custom_gradient(writes="v")
def cubed(v: Any, u: Any) -> None:
    v[:] = u * u * u


@cubed.reverse
def _(v: Any, u: Any, d_v: Any, d_u: Any) -> None:
    d_u += 3 * u * u * d_v


@dataclass(frozen=True)
class Buffer:
    """A part of an allocation."""

    allocation: int
    start: int
    size: int

    def meets(self, other: Buffer) -> bool:
        apart = self.start >= other.start + other.size or other.start >= self.start + self.size
        return self.allocation == other.allocation and not apart

    def of(self, allocations: list[Any]) -> Any:
        return allocations[self.allocation][self.start : self.start + self.size]


@dataclass
class Program:
    """`steps`: (name, buffers, number). `scale`: of the number that all launches of add_to share."""

    sizes: list[int]
    steps: list[tuple[str, tuple[Buffer, ...], float]] = field(default_factory=list)
    output: Buffer = Buffer(0, 0, N)

    def __str__(self) -> str:
        return "\n".join([str(self.sizes), *map(str, self.steps), f"output {self.output}"])


def make(seed: int, length: int = 14, repeats: int = 3, without: tuple[str, ...] = ()) -> Program:
    rng = np.random.default_rng(seed)
    names = [name for name in STEPS if name not in without]
    sizes = [3 * N + 4, N, N, 1]
    program = Program(sizes)
    starts = [0, N, 2 * N, int(rng.integers(1, N)), 2 * N + 4]
    vectors = [Buffer(0, start, N) for start in starts] + [Buffer(1, 0, N), Buffer(2, 0, N)]
    body = [_step(rng, names, vectors) for _ in range(int(rng.integers(1, length)))]
    program.steps = body * int(rng.integers(1, repeats + 1)) + [_step(rng, names, vectors) for _ in range(3)]
    program.output = vectors[int(rng.integers(len(vectors)))]
    return program


def _step(rng: Any, names: list[str], vectors: list[Buffer]) -> tuple[str, tuple[Buffer, ...], float]:
    while True:
        name = str(rng.choice(names))
        _, pattern, _ = STEPS[name]
        chosen = tuple(Buffer(3, 0, 1) if p == "s" else vectors[int(rng.integers(len(vectors)))] for p in pattern)
        if "h" in pattern and any(b.allocation or not 0 < b.start < 2 * N + 4 for b in chosen):
            continue
        if _is_allowed(name, chosen):
            return name, chosen, float(rng.uniform(0.2, 0.9))


_ELEMENTWISE = {"square", "mix", "product", "add_to", "spread", "temporary", "shrink", "counted"}


def _is_allowed(name: str, chosen: tuple[Buffer, ...]) -> bool:
    """No races: what is written is apart from what is read, or the same elements by the same threads."""
    if name == "halo":
        chosen = tuple(Buffer(b.allocation, b.start - 1, b.size + 2) for b in chosen)
    if name in ("gradient", "tangent") and any(a.meets(b) for k, a in enumerate(chosen) for b in chosen[:k]):
        return False
    written = chosen[:2] if name == "on_the_way" else chosen[:1]
    for buffer in chosen[len(written) :]:
        for target in written:
            if buffer.meets(target) and not (name in _ELEMENTWISE and buffer == target):
                return False
    return len(written) < 2 or not written[0].meets(written[1])


# ---- forward mode by hand: (values, tangents) of each buffer, in the order of the pattern ---------------------------

Pair = tuple[Any, Any]


def _square(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:] = da * x[0] * x[0] + 2 * a * x[0] * x[1]
    y[0][:] = a * x[0] * x[0] + 0.1


def _mix(y: Pair, x: Pair, z: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = 0.5 * x[1] - 0.25 * z[1], 0.5 * x[0] - 0.25 * z[0]


def _product(y: Pair, x: Pair, z: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = x[1] * z[0] + x[0] * z[1], x[0] * z[0]


def _sine(x: Pair, a: float, da: float) -> None:
    x[1][:], x[0][:] = np.cos(x[0]) * x[1], np.sin(x[0])


def _add_to(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = y[1] + a * x[1] + da * x[0], y[0] + a * x[0]


def _neighbours(y: Pair, x: Pair, a: float, da: float) -> None:
    after, d_after = np.roll(x[0], -1), np.roll(x[1], -1)
    y[1][:], y[0][:] = 0.3 * (x[1] * after + x[0] * d_after), 0.3 * x[0] * after


def _total(s: Pair, x: Pair, a: float, da: float) -> None:
    s[1][0] += 0.2 * (x[0] * x[1]).sum()
    s[0][0] += 0.1 * (x[0] * x[0]).sum()


def _spread(y: Pair, s: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = s[1] * 0.05 + x[1] * 0.5, s[0] * 0.05 + x[0] * 0.5


def _every_other(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][1::2], y[0][1::2] = 2 * x[0][1::2] * x[1][1::2], x[0][1::2] ** 2


def _on_the_way(u: Pair, y: Pair, a: float, da: float) -> None:
    s, ds = np.sin(u[0]), np.cos(u[0]) * u[1]
    y[1][:], y[0][:] = 2 * s * ds, s * s
    u[1][:], u[0][:] = 3 * s * s * ds, s**3


def _copy(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = x[1], x[0]


def _fill(y: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = 0.0, a


def _wave(y: Pair, x: Pair, s: Pair, a: float, da: float) -> None:
    """Its number is what the sum holds."""
    y[1][:], y[0][:] = np.cos(s[0] * x[0]) * (s[1] * x[0] + s[0] * x[1]), np.sin(s[0] * x[0])


def _gradient(y: Pair, x: Pair, d_y: Pair, d_x: Pair, a: float, da: float) -> None:
    d_x[1][:] += 2 * a * (x[1] * d_y[0] + x[0] * d_y[1])
    d_x[0][:] += 2 * a * x[0] * d_y[0]
    d_y[1][:], d_y[0][:] = 0, 0
    _square(y, x, a, da)


def _tangent(y: Pair, x: Pair, t_y: Pair, t_x: Pair, a: float, da: float) -> None:
    t_y[1][:], t_y[0][:] = 2 * a * (x[1] * t_x[0] + x[0] * t_x[1]), 2 * a * x[0] * t_x[0]
    _square(y, x, a, da)


def _cubed(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = 3 * x[0] ** 2 * x[1], x[0] ** 3


def _temporary(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = a * x[0] * x[1] - 0.25 * x[1], 0.5 * (a * x[0] ** 2 + 0.1) - 0.25 * x[0]


def _shrink(y: Pair, x: Pair, a: float, da: float) -> None:
    factor = np.ones(N)
    while (larger := (factor * x[0]) ** 2 > 0.3).any():
        factor[larger] *= 0.8
    y[1][:], y[0][:] = 2 * factor * x[0] * x[1], factor * x[0] ** 2


def _counted(y: Pair, x: Pair, a: float, da: float) -> None:
    y[1][:], y[0][:] = 2 * x[0] * x[1], x[0] ** 2


def _turn(indices: Any) -> None:
    indices[:] = (indices * 5 + 1) % N


# name: (reference, buffers: v a vector, s the sum; numbers that the launch takes)
STEPS: dict[str, tuple[Callable[..., None] | None, str, bool]] = {
    "square": (_square, "vv", True),
    "mix": (_mix, "vvv", False),
    "product": (_product, "vvv", False),
    "sine": (_sine, "v", False),
    "add_to": (_add_to, "vv", True),
    "neighbours": (_neighbours, "vv", False),
    "total": (_total, "sv", False),
    "spread": (_spread, "vsv", False),
    "every_other": (_every_other, "vv", False),
    "on_the_way": (_on_the_way, "vv", False),
    "copy": (_copy, "vv", False),
    "fill": (_fill, "v", False),
    "wave": (_wave, "vvs", False),
    "halo": (None, "hh", False),
    "turn": (None, "", False),
    "gather": (None, "vv", False),
    "gradient": (_gradient, "vvvv", True),
    "tangent": (_tangent, "vvvv", True),
    "cubed": (_cubed, "vv", False),
    "temporary": (_temporary, "vv", True),
    "shrink": (_shrink, "vv", False),
    "counted": (_counted, "vv", False),
}


@dataclass
class Inputs:
    values: list[Any]
    tangents: list[Any]
    indices: Any
    number_tangent: float  # of what add_to multiplies by, the same in all its launches


def inputs(program: Program, seed: int) -> Inputs:
    rng = np.random.default_rng(seed)
    values = [rng.uniform(-1, 1, size) for size in program.sizes]
    tangents = [rng.uniform(-1, 1, size) for size in program.sizes]
    return Inputs(values, tangents, rng.permutation(N).astype(np.int32), float(rng.uniform(-1, 1)))


def run_reference(program: Program, given: Inputs) -> tuple[list[Any], list[Any]]:
    values, tangents = [v.copy() for v in given.values], [t.copy() for t in given.tangents]
    indices = given.indices.astype(np.int64)
    for name, buffers, number in program.steps:
        pairs = [(b.of(values), b.of(tangents)) for b in buffers]
        reference = STEPS[name][0]
        if name == "turn":
            _turn(indices)
        elif name == "halo":
            (y, dy), (x, dx) = [[_around(b, of) for of in (values, tangents)] for b in buffers]
            dy[:-2], y[:-2] = 0.4 * (dx[:-2] * x[2:] + x[:-2] * dx[2:]), 0.4 * x[:-2] * x[2:]
        elif reference is None:
            (y, dy), (x, dx) = pairs
            dy[:], y[:] = 2 * x[indices] * dx[indices], x[indices] ** 2
        else:
            # What overlaps is read before it is written: the right-hand sides above are computed first.
            several = name in ("on_the_way", "gradient", "tangent")  # are written, and nothing overlaps
            copies = pairs if several else [pairs[0], *((v.copy(), t.copy()) for v, t in pairs[1:])]
            reference(*copies, number, given.number_tangent if name == "add_to" else 0.0)
    return values, tangents


def _around(buffer: Buffer, allocations: list[Any]) -> Any:
    """A buffer with an element on either side."""
    return Buffer(buffer.allocation, buffer.start - 1, buffer.size + 2).of(allocations)


def run_recorded(program: Program, allocations: list[Any], indices: Any) -> None:
    module = kernels()
    for name, buffers, number in program.steps:
        arrays = [b.of(allocations) for b in buffers]
        if name == "copy":
            kg.copy(*arrays)
        elif name == "fill":
            kg.fill(arrays[0], number)
        elif name == "turn":
            module["turn"][2, 8](indices, N)
        elif name == "wave":  # a 0-d array for a number
            module["wave"][2, 8](*arrays[:2], arrays[2].reshape(()), N)
        elif name == "gather":
            module["gather"][2, 8](*arrays, indices, N)
        elif name in ("gradient", "tangent"):
            derived(name)[2, 8](*arrays[:2], number, N, *arrays[2:])
        elif name == "cubed":
            cubed(*arrays)
        elif name == "temporary":  # nobody holds it afterwards
            made = kg.zeros(N, arrays[0].dtype, like=arrays[0])
            module["square"][2, 8](made, arrays[1], number, N)
            module["mix"][2, 8](arrays[0], made, arrays[1], N)
        elif name == "counted":
            module["counted"][2, 8](*arrays, kg.zeros(1, indices.dtype, like=indices), N)
        else:
            module[name][2, 8](*arrays, *([number] if STEPS[name][2] else []), N)


def on_host(array: Any) -> Any:
    """A copy, from CuPy, PyTorch or NumPy."""
    if hasattr(array, "get"):
        return array.get()
    return array.cpu().numpy().copy() if hasattr(array, "cpu") else np.array(array)


def check(
    seed: int, budget: int | None = None, convert: Callable[[Any], Any] = lambda a: a, without: tuple[str, ...] = ()
) -> Any:
    """Compares a program's adjoints with forward mode by hand, in one direction through all that goes in. Every other
    program is reversed twice. To be recorded changes no bit, but where
    launches keep tapes or add in any order."""
    program = make(seed, without=without)
    given = inputs(program, seed + 1)
    values, tangents = run_reference(program, given)
    exact_values, exact_tangents = run_reference(program, _longer(given))
    plain, indices = [convert(v.copy()) for v in given.values], convert(given.indices.copy())
    run_recorded(program, plain, indices)
    allocations = [convert(v.copy()) for v in given.values]
    indices = convert(given.indices.copy())
    with kg.record(tape_budget=budget) as tape:
        run_recorded(program, allocations, indices)
    after = [on_host(a) for a in allocations]
    for found, expected, exact, unrecorded in zip(after, values, exact_values, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 + rounding(expected, exact))
        if isinstance(unrecorded, np.ndarray) and not any(step.tape_bytes for step in tape.steps):
            np.testing.assert_array_equal(found, unrecorded)
    weights = np.random.default_rng(seed + 2).uniform(-1, 1, N)
    output = program.output.of(allocations)
    if not knows_some(tape, output):
        return tape
    for keep in (True, False) if seed % 2 else (False,):
        tape.backward(output, convert(weights), keep=keep)
    for found, allocation in zip(after, allocations, strict=True):
        np.testing.assert_array_equal(on_host(allocation), found)
    expected, exact = (weights @ program.output.of(of) for of in (tangents, exact_tangents))
    compare(program, given, tape, allocations, float(expected), rounding(expected, exact))
    return tape


def _longer(given: Inputs) -> Inputs:
    values, tangents = ([a.astype(np.longdouble) for a in of] for of in (given.values, given.tangents))
    return Inputs(values, tangents, given.indices, given.number_tangent)


def rounding(found: Any, exact: Any) -> float:
    """By how much results may differ that were rounded otherwise: a few programs are chaotic, sin(1e7 * x), and amplify
    the last bits until nothing is left of the others."""
    return 100 * float(np.nan_to_num(np.abs(found - exact)).max())


def knows_some(tape: Any, array: Any) -> bool:
    return any(tape.knows(array[k : k + 1]) for k in range(len(array)))


def compare(program: Program, given: Inputs, tape: Any, allocations: list[Any], expected: float, by: float) -> None:
    found = 0.0
    for allocation, tangent in zip(allocations, given.tangents, strict=True):
        if knows_some(tape, allocation):
            found += float(on_host(tape.grad(allocation)) @ tangent)
    if any(name == "add_to" for name, _, _ in program.steps):
        found += tape.grad("add_to.c") * given.number_tangent
    scale = max(1.0, abs(expected))
    assert abs(found - expected) < 1e-9 * scale + by, f"{found} != {expected}\n{program}"


def check_program(
    seed: int, budget: int | None = None, convert: Callable[[Any], Any] = lambda a: a, without: tuple[str, ...] = ()
) -> None:
    """Compares `tape.program` of a program, called with other contents, and its gradient, with forward mode by hand."""
    program = make(seed, without=(*without, "cubed"))
    first = inputs(program, seed + 1)
    allocations, indices = [convert(v.copy()) for v in first.values], convert(first.indices.copy())
    with kg.record(tape_budget=budget) as tape:
        for array in (*allocations, indices):
            tape.watch(array)
        run_recorded(program, allocations, indices)
    held = [on_host(a) for a in allocations]
    made = tape.program((*allocations, indices), (program.output.of(allocations),))
    gradient = kg.gradient(made)
    for more in (2, 3):
        given = inputs(program, seed + more)
        given.number_tangent = 0.0
        values, tangents = run_reference(program, given)
        arrays = [convert(a.copy()) for a in (*given.values, given.indices)]
        np.testing.assert_allclose(on_host(made(*arrays)), program.output.of(values), rtol=1e-12, atol=1e-12)
        weights = np.random.default_rng(seed).uniform(-1, 1, N)
        adjoints = gradient(*arrays, convert(weights.copy()))
        assert adjoints[-1] is None
        found = sum(float(on_host(a) @ t) for a, t in zip(adjoints, given.tangents, strict=False))
        expected = weights @ program.output.of(tangents)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10, err_msg=str(program))
    assert all((on_host(a) == h).all() for a, h in zip(allocations, held, strict=True))  # nobody else's memory


def check_tangent(
    seed: int, budget: int | None = None, convert: Callable[[Any], Any] = lambda a: a, without: tuple[str, ...] = ()
) -> None:
    """Compares `kg.jvp` of `tape.program` with forward mode by hand, and the gradient of that with differences of the
    program's gradient."""
    program = make(seed, without=(*without, *NO_FORWARD_MODE))
    first = inputs(program, seed + 1)
    allocations, indices = [convert(v.copy()) for v in first.values], convert(first.indices.copy())
    with kg.record(tape_budget=budget) as tape:
        for array in (*allocations, indices):
            tape.watch(array)
        run_recorded(program, allocations, indices)
    made = tape.program((*allocations, indices), (program.output.of(allocations),))
    tangent = kg.jvp(made)
    for more in (2, 3):
        given = inputs(program, seed + more)
        given.number_tangent = 0.0
        values, tangents = run_reference(program, given)
        arrays = [convert(a.copy()) for a in (*given.values, given.indices, *given.tangents)]
        value, moved = tangent(*arrays)
        np.testing.assert_allclose(on_host(value), program.output.of(values), rtol=1e-12, atol=1e-12)
        expected = program.output.of(tangents)
        np.testing.assert_allclose(on_host(moved), expected, rtol=1e-9, atol=1e-10, err_msg=str(program))
    _check_second(program, made, tangent, arrays, convert)


def _check_second(program: Program, made: Any, tangent: Any, arrays: list[Any], convert: Callable[[Any], Any]) -> None:
    """The gradient of the tangent, with adjoints of the tangents alone: it is the program's gradient by the tangents,
    and by the inputs the derivative of that along the tangents."""
    names = {name for name, _, _ in program.steps}
    shared = any(a.meets(b) for _, buffers, _ in program.steps for k, a in enumerate(buffers) for b in buffers[:k])
    if shared or names & {"halo", "counted", "gather"}:
        try:
            kg.gradient(tangent)
        except kg.TapeError as error:
            assert "cannot be recorded" in str(error), error
        return
    count = len(program.sizes)
    along, (*values, indices) = arrays[count + 1 :], arrays[: count + 1]
    weights = convert(np.random.default_rng(1).uniform(-1, 1, N))
    found = kg.gradient(tangent)(*arrays, convert(np.zeros(N)), weights)
    gradient, step = kg.gradient(made), 1e-5

    def at(by: float) -> list[Any]:
        return list(
            map(on_host, gradient(*[v + by * t for v, t in zip(values, along, strict=True)], indices, weights)[:-1])
        )

    for one, higher, lower in zip(found[:count], at(step), at(-step), strict=True):
        np.testing.assert_allclose(
            on_host(one), (higher - lower) / (2 * step), rtol=1e-6, atol=1e-7, err_msg=str(program)
        )
    for one, first in zip(found[count + 1 :], at(0), strict=True):
        np.testing.assert_allclose(on_host(one), first, rtol=1e-9, atol=1e-10)


NO_FORWARD_MODE = ("cubed", "gradient", "tangent")
