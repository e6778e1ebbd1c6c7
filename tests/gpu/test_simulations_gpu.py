"""Simulations as users write them, on a GPU: against finite differences on the GPU, with and without budgets."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from simulations import BLOCK, GRID, SIMULATIONS, H, W, check_simulation, kernels

cupy = pytest.importorskip("cupy")


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad: this memory was written before")
        yield


@pytest.mark.parametrize("share", [None, 10])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_on_arrays(name: str, share: int | None) -> None:
    check_simulation(name, share, cupy.asarray, cupy.asnumpy)


@pytest.mark.parametrize("name", ["map", "leapfrog", "solver", "views"])
def test_with_the_least_budget(name: str) -> None:
    check_simulation(name, 0, cupy.asarray, cupy.asnumpy)


@pytest.mark.parametrize("name", ["two buffers", "lattice-Boltzmann", "solver", "views"])
def test_on_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    check_simulation(name, 5, lambda a: torch.from_numpy(a).cuda(), lambda tensor: tensor.cpu().numpy())


@pytest.mark.parametrize("name", ["two buffers", "in place", "lattice-Boltzmann", "leapfrog", "views"])
def test_as_programs(name: str) -> None:
    simulation = SIMULATIONS[name]
    number = 0.0 if simulation.number is None else simulation.number[1]
    given = {n: cupy.asarray(a) for n, a in simulation.arrays.items()}
    first = [given[n] for n in simulation.wanted.split()]
    begun = [a.copy() for a in first]
    with kg.record() as tape:
        out = simulation.run(given, number)
    made, seed = tape.program(tuple(first), (out,)), cupy.linspace(1, 2, out.size).reshape(out.shape)
    tape.backward(out, seed)
    for _ in range(2):
        cupy.testing.assert_allclose(made(*begun), out, rtol=1e-12)
        adjoints = kg.gradient(made)(*begun, seed)
        for array, adjoint in zip(first, adjoints if isinstance(adjoints, tuple) else (adjoints,), strict=True):
            cupy.testing.assert_allclose(adjoint, tape.grad(array), rtol=1e-10, atol=1e-12)


def test_another_thread_launches_meanwhile() -> None:
    """On memory of its own, with the same kernels; nothing of it is recorded."""
    simulation, done = SIMULATIONS["two buffers"], threading.Event()
    given = {n: cupy.asarray(a) for n, a in simulation.arrays.items()}
    other = {n: cupy.asarray(a) for n, a in simulation.arrays.items()}

    def launch() -> None:
        while not done.is_set():
            kernels()["heat"][GRID, BLOCK](other["v"], other["u"], other["k"], W, H, 0.1)

    thread = threading.Thread(target=launch)
    thread.start()
    try:
        with kg.record() as tape:
            out = simulation.run(given, 0.06)
        tape.backward(out, cupy.ones((H, W)))
    finally:
        done.set()
        thread.join()
    assert len(tape.steps) == 1000
    alone = {n: np.array(a) for n, a in simulation.arrays.items()}
    with kg.record() as on_cpu:
        expected = simulation.run(alone, 0.06)
    on_cpu.backward(expected, np.ones((H, W)))
    np.testing.assert_allclose(cupy.asnumpy(tape.grad(given["u"])), on_cpu.grad(alone["u"]), rtol=1e-9)
