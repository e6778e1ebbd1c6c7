"""Operators where networks are trained: autocast, checkpointing, several processes, determinism."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_kernels import MODULE, elementwise, random, weighted  # noqa: E402

TRIPLE = elementwise("triple", {"y": "x"})
WEIGHTED = elementwise("weighted", {"y": "x"})


def test_autocast_brings_tensors_as_the_kernel_wants_them() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = TRIPLE(x)
    assert y.dtype == torch.float32 and y.tolist() == [3, 6]
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.bfloat16 and x.grad.tolist() == [3, 3]
    with pytest.raises(kg.ArgumentError, match="wants a float32 array"):
        TRIPLE(x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_activations(reentrant: bool) -> None:
    x, w = random(5), random(5, seed=1)
    block = lambda x, w: WEIGHTED(WEIGHTED(x, w, 2.0), w, 0.5)  # noqa: E731
    found = checkpoint(block, x, w, use_reentrant=reentrant).sum()
    expected = weighted(weighted(x, w, 2.0), w, 0.5).sum()
    for one, other in zip(
        torch.autograd.grad(found, (x, w)) if not reentrant else _backward(found, x, w),
        torch.autograd.grad(expected, (x, w)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def _backward(loss: Any, *inputs: Any) -> list[Any]:
    loss.backward()
    return [x.grad for x in inputs]


def test_deterministic_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgrad.derivatives.gradient import Gradient

    used: list[bool] = []
    launch = Gradient._launch_plainly

    def watch(self: Any, *args: Any) -> None:
        used.append(self.settings.deterministic)
        launch(self, *args)

    monkeypatch.setattr(Gradient, "_launch_plainly", watch)
    op = kg.torch.op(MODULE["gather"], {"y": "index"}, grid=lambda n, **_: n, block=1)
    x, index = random(6), torch.tensor([3, 0, 3], dtype=torch.int32)
    torch.use_deterministic_algorithms(True)
    try:
        found = torch.autograd.grad(op(x, index, 3).sum(), x)[0]
    finally:
        torch.use_deterministic_algorithms(False)
    op(x, index, 3).sum().backward()
    assert used == [True, False]
    assert torch.equal(found, x.grad) and found.tolist() == [2 * x[0], 0, 0, 4 * x[3], 0, 0]


def test_data_parallel_training_in_two_processes() -> None:
    """Both processes end with the gradients of all data."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).parent / "torch_data_parallel.py"
    environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
    commands = [[sys.executable, str(script), str(rank), str(port)] for rank in range(2)]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, text=True, env=environment) for c in commands]
    found = [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in running]
    data = random(2, 5, grad=False, seed=7)
    w = torch.ones(5, dtype=torch.float64, requires_grad=True)
    (weighted(data, w.expand(2, 5), 1.0).sum() / 2).backward()
    for gradient in found:
        torch.testing.assert_close(torch.tensor(gradient, dtype=torch.float64), w.grad)
