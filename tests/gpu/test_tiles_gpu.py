"""Tiles that are filled again, parts of dynamic shared memory, and cells of threads' own, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import earlier_fill_cases
import kernelgrad as kg
import shared_part_cases
import thread_cell_cases
from derived import kernel_of
from kernelgrad.runtime.config import make_launch

cupy = pytest.importorskip("cupy")
OPTIONS: dict[str, dict[str, Any]] = {"J": {}, "R": {"primal": False}}
FILLS = {**earlier_fill_cases.AGAIN, **earlier_fill_cases.NOT}
PARTS = {name: case for name, case in shared_part_cases.CASES.items() if name != "beyond what there is"}


def compare(gradient: Any, launch: Any, arguments: tuple[Any, ...]) -> None:
    """With the CPU's values."""
    rng = np.random.default_rng(2)
    adjoints = [rng.uniform(-1, 1, a.size) for a in arguments[:3]]
    host = [*arguments, *adjoints]
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    for values in (host, device):
        gradient[launch](*values)
    for want, got in zip(host, device, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got.get(), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", FILLS)
def test_filled_again(name: str, how: str) -> None:
    case = FILLS[name]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z", **OPTIONS[how])
    compare(gradient, case.launch, (*case.arrays(), case.flags(), case.n))


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_dynamic_memory(name: str, how: str) -> None:
    case = PARTS[name]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z", **OPTIONS[how])
    compare(gradient, (3, case.block, case.nbytes), shared_part_cases.arguments(case))


@pytest.mark.parametrize("how", OPTIONS)
@pytest.mark.parametrize("name", thread_cell_cases.CASES)
def test_cells_of_threads(name: str, how: str) -> None:
    case = thread_cell_cases.CASES[name]
    gradient = kg.gradient(kernel_of(case.source), "y, x, z", **OPTIONS[how])
    compare(gradient, (3, case.block, case.nbytes), thread_cell_cases.arguments(case))


def test_attention_in_one_array() -> None:
    heads, N, d, B = 3, 128, 32, 32
    rng, nbytes = np.random.default_rng(1), 8 * (3 * B * d + B * B)
    gradient = kg.gradient(kg.compile(thread_cell_cases.ATTENTION)["attention"], "Q, K, V, O, l, m")
    q, k, v, d_o = (rng.standard_normal((heads, N, d)) for _ in range(4))
    state = np.zeros((heads, N)), np.full((heads, N), -1e20), np.zeros((heads, N, d))
    adjoints = [*(np.zeros_like(q) for _ in range(3)), d_o, np.zeros((heads, N)), np.zeros((heads, N))]
    host = [q, k, v, N, d, N // B, B, 0.2, *state, *adjoints]
    device = [cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in host]
    plan = gradient.planned(make_launch(heads, B, nbytes), tuple(device[:11]), {}).plan
    assert plan.launch.shared_bytes == 0
    for values in (host, device):
        gradient[heads, B, nbytes](*values)
    for want, got in zip(host, device, strict=True):
        if isinstance(want, np.ndarray):
            np.testing.assert_allclose(got.get(), want, rtol=1e-8, atol=1e-8)
