"""Views that a recording meets one after the other: what is known of a whole stays known of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = r"""
__global__ void scale(double *y, const double *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
__global__ void bend(double *y, const double *w, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = y[i] * y[i] * w[i];
}
"""
N = 512


@pytest.fixture(scope="module")
def module() -> Any:
    return kg.compile(SOURCE)


@pytest.fixture(scope="module")
def scale(module: Any) -> Any:
    return module["scale"][4, 128]


@pytest.mark.parametrize("part", [slice(0, 256), slice(256, 512), slice(100, 200)])
def test_unseen_writes_are_found_by_the_first_view_of_a_part(scale: Any, part: slice) -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    with kg.record():
        scale(y, x, 3.0, N)
        y *= 5
        with pytest.raises(kg.TapeError, match="scale: the memory of 'x' was changed since"):
            scale(z[part], y[part], 2.0, part.stop - part.start)


def test_unseen_writes_are_found_after_a_view_of_another_part(scale: Any) -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    with kg.record():
        scale(y, x, 3.0, N)
        scale(y[:256], x[:256], 3.0, 256)
        y[256:] *= 5
        with pytest.raises(kg.TapeError, match="scale: the memory of 'x' was changed since"):
            scale(z[256:], y[256:], 2.0, 256)


def test_parts_that_are_written_again_are_known(scale: Any) -> None:
    x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
    with kg.record() as tape:
        scale(y, x, 3.0, N)
        y[256:] *= 5
        scale(y[256:], x[256:], 4.0, 256)
        scale(z[256:], y[256:], 2.0, 256)
    tape.backward(z[256:], np.ones(256))
    assert (tape.grad(x) == np.repeat([0.0, 8.0], 256)).all()


@pytest.mark.parametrize("package", ["numpy", "torch"])
@pytest.mark.parametrize("budget", [None, 1 << 16])
def test_unseen_writes_that_are_overwritten_in_part_are_found(scale: Any, budget: int | None, package: str) -> None:
    """A launch writes some of an array: what it leaves was not made by whom the tape knows."""
    made = (lambda a: a) if package == "numpy" else pytest.importorskip("torch").from_numpy
    x, y, z = made(np.ones(N)), made(np.zeros(N)), made(np.zeros(N))
    for count, is_found in ((256, True), (N, False)):
        with kg.record(tape_budget=budget) as tape:
            scale(y, x, 3.0, N)
            y[256:] *= 5
            scale(y, x, 4.0, count)
            scale(z, y, 2.0, N)
        after = z.sum()
        if is_found:
            with pytest.raises(kg.TapeError, match="scale: the memory of 'y' was changed before it, which leaves some"):
                tape.backward(z, made(np.ones(N)))
            with pytest.raises(kg.TapeError, match="a step 'unseen write' cannot be run again"):
                tape.program((x,), (z,))
        else:
            tape.backward(z, made(np.ones(N)))
            assert (tape.grad(x) == 8.0).all() and z.sum() == after


@pytest.mark.parametrize("kernel", ["scale", "copy", "fill"])
def test_unseen_writes_to_what_is_read_again_are_found(module: Any, scale: Any, kernel: str) -> None:
    """By the reverse, or by a step that may be run again."""

    def overwrite(y: Any, x: Any) -> None:
        if kernel == "scale":
            scale(y, x, 4.0, 16)
        elif kernel == "copy":
            kg.copy(y, x)
        else:
            kg.fill(y, 4.0)

    x, y, z = np.ones(16), np.ones(16), np.ones(16)
    with kg.record(), pytest.raises(kg.TapeError, match="bend: the memory of 'w' was changed after the recorded"):
        module["bend"][1, 32](z, y, 16)
        y *= 5
        overwrite(y, x)
    with kg.record(tape_budget=1 << 16), pytest.raises(kg.TapeError, match="was changed since the last recorded step"):
        kg.copy(z, y)
        y *= 5
        overwrite(y, x)
    with kg.record() as tape:
        kg.copy(z, y)
        y *= 5
        overwrite(y, x)
    tape.backward([(z, np.ones(16)), (y, np.ones(16))])
    assert (tape.grad(y) == 1.0).all()
    assert kernel == "fill" or (tape.grad(x) == {"scale": 4, "copy": 1}[kernel]).all()


@pytest.mark.parametrize("part", [slice(0, 1024), slice(0, 8), slice(6, 10)])
def test_adjoints_of_parts_keep_their_dtype(scale: Any, part: slice) -> None:
    x, y = np.ones(N), np.zeros(N)
    with kg.record() as tape:
        scale(y, x, 3.0, N)
    tape.backward(y, np.ones(N))
    with pytest.raises(kg.TapeError, match="is used as float64 and as float32"):
        tape.grad(x.view(np.float32)[part])
    assert (tape.grad(x[3:7]) == 3.0).all()


def test_unseen_writes_to_an_output_are_found_at_the_end(scale: Any) -> None:
    x, y = np.ones(N), np.zeros(N)
    with kg.record() as tape:
        scale(y, x, 3.0, N)
        y *= 2
    with pytest.raises(kg.TapeError, match="backward: the memory of 'output' was changed since"):
        tape.backward(y[:4], np.ones(4))
    with kg.record() as tape:
        scale(y, x, 3.0, N)
    y *= 2  # what comes after is no part of the program
    tape.backward(y, np.ones(N))
    assert (tape.grad(x) == 3.0).all()


def test_a_wrong_seed_costs_nothing(scale: Any) -> None:
    x, y = np.ones(N), np.zeros(N)
    with kg.record() as tape:
        scale(y, x, 3.0, N)
    with pytest.raises(kg.ArgumentError, match="the seed is float32"):
        tape.backward(y, np.ones(N, np.float32))
    with kg.record(), pytest.raises(kg.TapeError, match="backward of another tape cannot be recorded"):
        tape.backward(y, np.ones(N))
    tape.backward(y, np.ones(N))
    assert (tape.grad(x) == 3.0).all()


def test_checkpointed_steps_that_use_parts_of_arrays(module: Any) -> None:
    """Of the state and of `wrt`."""
    state, w = np.linspace(0.5, 1.0, 16), np.linspace(1.0, 2.0, 16)
    first = state.copy()

    def step(arrays: Any, k: int) -> None:
        module["bend"][1, 32](arrays[0][:8], w[k:], 8)

    def loss(x: Any, w: Any) -> Any:
        x = x.copy()
        for k in range(3):
            x[:8] = x[:8] * x[:8] * w[k : k + 8]
        return x.sum()

    run = kg.checkpoint(step, state, 3, wrt=[w])
    with pytest.raises(kg.ArgumentError, match="the seed is float32"):
        run.backward(np.ones(16, np.float32))
    run.backward(np.ones(16))
    eye = 1e-6 * np.eye(16)
    of_state = [(loss(first + e, w) - loss(first - e, w)) / 2e-6 for e in eye]
    of_w = [(loss(first, w + e) - loss(first, w - e)) / 2e-6 for e in eye]
    np.testing.assert_allclose(run.grad(state), of_state, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(run.grad(w), of_w, rtol=1e-6, atol=1e-7)
    with pytest.raises(kg.ArgumentError, match="neither of the first state"):
        run.grad(state[:8])


@pytest.mark.parametrize("before", [True, False])
def test_unseen_writes_in_checkpointed_steps_are_found(module: Any, before: bool) -> None:
    state, w = np.ones(16), np.ones(16)

    def step(arrays: Any, k: int) -> None:
        arrays[0][:8] *= 2 if before else 1
        module["bend"][1, 32](arrays[0], w, 16)
        arrays[0][8:] *= 1 if before else 2

    run = kg.checkpoint(step, state, 3)
    with pytest.raises(kg.TapeError, match="was changed since the last recorded step"):
        run.backward(np.ones(16))


def test_what_writes_unseen_is_refused(module: Any) -> None:
    y, w = np.ones(16), np.ones(16)
    with kg.record(), pytest.raises(kg.TapeError, match="bend.check, which runs the kernel, cannot be recorded"):
        module["bend"].check(1, 32, y, w, 16)
    assert (y == 1).all()


@pytest.mark.parametrize(
    ("dtype", "value"), [("i1", 300), ("i1", np.int64(300)), ("u4", -1), ("i4", 1.5), ("f4", 1j), ("?", 0.5)]
)
def test_fills_that_do_not_fit(dtype: str, value: Any) -> None:
    with pytest.raises(kg.ArgumentError, match="fill: .* is no number that an array of"):
        kg.fill(np.zeros(3, dtype), value)


@pytest.mark.parametrize(("dtype", "value"), [("i1", -7), ("f4", 2), ("f4", np.float64(0.5)), ("c8", 1j), ("?", True)])
def test_fills_that_fit(dtype: str, value: Any) -> None:
    array = np.zeros(3, dtype)
    kg.fill(array, value)
    assert (array == value).all()


# ---- arrays that are used in part, or in parts


def test_the_adjoint_of_an_array_whose_parts_were_passed(module: Any) -> None:
    """Each part has a shadow of its own; nothing lies between them that anybody used."""
    both = np.linspace(1, 2, 16)
    held, ones = both.copy(), np.ones(8)
    with kg.record() as tape:
        module["bend"][1, 32](both[:8], both[8:], 8)
    tape.backward(both[:8], ones)
    expected = np.concatenate([2 * held[:8] * held[8:], held[:8] ** 2])
    np.testing.assert_allclose(tape.grad(both), expected)
    np.testing.assert_allclose(tape.grad(both[4:12]), expected[4:12])


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_arrays_that_are_used_in_part(module: Any, package: str) -> None:
    convert: Any = np.array if package == "numpy" else pytest.importorskip("torch").tensor
    held, factors = np.linspace(1, 2, 20), np.linspace(2, 3, 20)
    y, w = convert(held), convert(factors)
    with kg.record() as tape:
        module["bend"][1, 32](y[2:6], w[8:12], 4)
        module["bend"][1, 32](y[9:12], w[12:15], 3)
    seed = np.linspace(-1, 1, 20)
    tape.backward(y, convert(seed))
    expected, of_w = seed.copy(), np.zeros(20)
    for at, to in ((slice(2, 6), slice(8, 12)), (slice(9, 12), slice(12, 15))):
        expected[at], of_w[to] = seed[at] * 2 * held[at] * factors[to], seed[at] * held[at] ** 2
    np.testing.assert_allclose(tape.grad(y), expected)  # what no step used has the seed for an adjoint
    np.testing.assert_allclose(tape.grad(w), of_w)
    with pytest.raises(kg.ArgumentError, match="no recorded step uses the memory of this array"):
        tape.grad(np.ones(20))
    with pytest.raises(kg.ArgumentError, match="no recorded step uses the memory of this array"):
        tape.grad(w[:8])


def test_programs_with_arrays_that_are_used_in_part(module: Any) -> None:
    y, w = np.linspace(1, 2, 20), np.linspace(2, 3, 20)
    with kg.record() as tape:
        module["bend"][1, 32](y[2:6], w[8:12], 4)
    p = tape.program((y, w), (y,))
    a, b, seed = np.linspace(3, 4, 20), np.linspace(4, 5, 20), np.linspace(-1, 1, 20)
    out, expected, of_b = a.copy(), seed.copy(), np.zeros(20)
    out[2:6] = a[2:6] ** 2 * b[8:12]
    expected[2:6], of_b[8:12] = seed[2:6] * 2 * a[2:6] * b[8:12], seed[2:6] * a[2:6] ** 2
    np.testing.assert_allclose(p(a, b), out)
    for found, wanted in zip(kg.gradient(p)(a, b, seed), (expected, of_b), strict=True):
        np.testing.assert_allclose(found, wanted)


def test_empty_outputs(scale: Any) -> None:
    x, y = np.zeros(0), np.zeros(0)
    with kg.record() as tape:
        scale(y, x, 2.0, 0)
    tape.backward(y, np.zeros(0))
    assert tape.grad(x).shape == (0,)


def test_steps_with_tensors_of_their_own_take_no_longer_each(scale: Any) -> None:
    """Tensors of earlier steps are not looked at again in each."""
    torch = pytest.importorskip("torch")
    rows = torch.ones(400, 8, dtype=torch.float64)
    with kg.record() as tape:
        for k in range(399):
            scale(rows[k + 1], rows[k], 1.01, 8)
    (group,) = tape.watcher._tensors._groups.values()
    assert len(group) == 1  # all rows share one count
    tape.backward(rows[399], torch.ones(8, dtype=torch.float64))
    np.testing.assert_allclose(tape.grad(rows)[0], 1.01**399)
    with kg.record():
        scale(rows[1], rows[0], 1.01, 8)
        rows[1].mul_(2)
        with pytest.raises(kg.TapeError, match="scale: the memory of 'x' was changed since"):
            scale(rows[2], rows[1], 1.01, 8)
