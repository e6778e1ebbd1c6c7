"""Simulations as users write them, on NumPy's arrays and PyTorch's tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from simulations import SIMULATIONS, check_simulation

LONG = ("two buffers", "in place", "lattice-Boltzmann")  # where each step is run again many times


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad: this memory was written before")
        yield


@pytest.mark.parametrize("share", [None, 10])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_on_arrays(name: str, share: int | None) -> None:
    check_simulation(name, share, np.asarray, np.asarray)


@pytest.mark.parametrize("name", [name for name in SIMULATIONS if name not in LONG])
def test_with_the_least_budget(name: str) -> None:
    check_simulation(name, 0, np.asarray, np.asarray)


@pytest.mark.parametrize("name", ["map", "leapfrog", "views", "solver"])
def test_on_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    check_simulation(name, 2, torch.from_numpy, lambda tensor: tensor.numpy())
