"""Launches that come again, on a GPU: the same launch on other arrays, numbers, streams, and from other threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import kernelgrad as kg
from kernelgrad.runtime.devices import context_number, driver

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch has no CUDA device", allow_module_level=True)

MODULE = kg.compile("""
__global__ void scale(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i];
}
__global__ void total(float *sum, const float *x, double a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, (float)a * x[i] * x[i]);
}
__global__ void iterate(float *y, const float *x, int steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < steps; k++) v = sinf(v) * x[i] + v;
    y[i] = v;
}
""")
N = 1000


def arrays(count: int, offset: int = 0) -> list[Any]:
    torch.manual_seed(count)
    return [torch.randn(N + offset, device="cuda")[offset:] for _ in range(count)]


def test_kernels(replayed: list[bool]) -> None:
    for k in range(5):
        y, x = arrays(2)
        MODULE["scale"][4, 256](y, x, 0.5 * k, N)
        torch.testing.assert_close(y, 0.5 * k * x * x)
    assert replayed[-3:] == [True] * 3


def test_views_go_the_usual_way(replayed: list[bool]) -> None:
    for _ in range(4):
        y, x = arrays(2, offset=3)
        MODULE["scale"][4, 256](y, x, 2.0, N)
        torch.testing.assert_close(y, 2 * x * x)
    assert replayed == []


@pytest.mark.parametrize("name", ["scale", "total"])
def test_gradients(name: str, replayed: list[bool]) -> None:
    gradient = kg.gradient(MODULE[name])
    for k in range(5):
        (y, x, d_y), d_x, d_a = arrays(3), torch.zeros(N, device="cuda"), torch.zeros(1, device="cuda")
        y, d_y = (t if name == "scale" else t[:1].clone() for t in (y, d_y))
        d_a = d_a if name == "scale" else d_a.double()
        seed = d_y.clone()
        gradient[4, 256](y, x, 1.5 + k, N, d_y, d_x, d_a)
        torch.testing.assert_close(d_x, 2 * (1.5 + k) * x * seed)
        torch.testing.assert_close(d_a.sum().float(), (x * x * seed).sum(), rtol=1e-4, atol=1e-3)
    assert replayed[-3:] == [True] * 3


def test_tapes(replayed: list[bool]) -> None:
    gradient = kg.gradient(MODULE["iterate"])
    first = None
    for _ in range(4):
        y, x, d_y = arrays(3)
        d_x = torch.zeros_like(x)
        gradient[4, 256](y, x, 20, N, d_y, d_x)
        first = d_x if first is None else first
        assert torch.equal(d_x, first)
    assert replayed[-2:] == [True] * 2


def test_side_streams(replayed: list[bool]) -> None:
    kernel = MODULE["scale"]
    for _ in range(4):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.ones(1 << 24, device="cuda")
            for _ in range(20):  # so that the stream is busy when the launch is put there
                x = x * 1.0
            y = torch.zeros_like(x)
            kernel[1 << 16, 256](y, x * 3, 1.0, 1 << 24)
            assert float(y.min()) == 9
    assert len(replayed) >= 2 and all(replayed)


def test_other_threads(replayed: list[bool]) -> None:
    """Where no context is current yet."""
    (y, x), wrong = arrays(2), list[float]()

    def go() -> None:
        MODULE["scale"][4, 256](y, x, 3.0, N)
        assert driver().cuCtxGetCurrent() == (0, context_number(0))  # which it keeps
        wrong.append(float((y - 3 * x * x).abs().max()))

    for _ in range(4):
        thread = threading.Thread(target=go)
        thread.start()
        thread.join()
    assert len(wrong) == 4 and max(wrong) < 1e-5
    assert len(replayed) >= 2 and all(replayed)


def test_writes_are_counted() -> None:
    y, x = arrays(2)
    for k in range(4):
        MODULE["scale"][4, 256](y, x, 1.0, N)
        assert (y._version, x._version) == (k + 1, 0)


def test_arrays_that_share_memory_are_refused() -> None:
    gradient = kg.gradient(MODULE["scale"])
    y, x, d_y, d_x, d_a = (torch.ones(N, device="cuda") for _ in range(5))
    for _ in range(3):
        gradient[4, 256](y, x, 1.0, N, d_y, d_x, d_a[:1].clone())
    with pytest.raises(kg.ArgumentError, match="share memory"):
        gradient[4, 256](y, x, 1.0, N, d_x, d_x, d_a[:1].clone())


def test_operators_in_graphs_after_many_calls() -> None:
    op = kg.torch.op(MODULE["scale"], {"y": "x"})
    x = torch.randn(N, device="cuda", requires_grad=True)

    def step() -> Any:
        y = op(x, 2.0)
        return (y, *torch.autograd.grad(y.sum(), (x,)))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, d_x = step()
    with torch.no_grad():
        x.mul_(3)
    graph.replay()
    torch.testing.assert_close(y, 2 * x * x)
    torch.testing.assert_close(d_x, 4 * x)
