"""`kg.torch.op` on a GPU: dtypes, streams, CUDA graphs, compilation, and the CPU's answers."""

from __future__ import annotations

from typing import Any

import pytest

import kernelgrad as kg
from operator_kernels import HALVES, ON_GPU

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch has no CUDA device", allow_module_level=True)

# PyTorch's own, of its forward mode and of graphs whose reference runs on another stream.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning"),
]
MODULE = kg.compile(HALVES + ON_GPU)


def blocks(x: Any, **_: Any) -> Any:
    return (x.numel() + 255) // 256


def make(name: str, outputs: Any = None, **sizes: Any) -> Any:
    sizes = {"n": lambda x, **_: x.numel(), **sizes}
    return kg.torch.op(MODULE[name], outputs, grid=blocks, block=256, sizes=sizes)


GELU = make("gelu", {"y": "x"}, columns=lambda bias, **_: bias.numel())
GROW = make("grow")


def reference(x: Any, bias: Any) -> Any:
    return torch.nn.functional.gelu(x + bias)


def inputs(rows: int = 300, columns: int = 77) -> tuple[Any, Any]:
    torch.manual_seed(0)
    x = torch.randn(rows, columns, device="cuda", requires_grad=True)
    return x, torch.randn(columns, device="cuda", requires_grad=True)


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_value_and_gradients() -> None:
    x, bias = inputs()
    same(GELU(x, bias), reference(x, bias))
    same(torch.autograd.grad(GELU(x, bias).sum(), (x, bias)), torch.autograd.grad(reference(x, bias).sum(), (x, bias)))
    hvp = torch.func.jvp(torch.func.grad(lambda x: GELU(x, bias).sum()), (x.detach(),), (torch.ones_like(x),))[1]
    expected = torch.func.grad(lambda x: torch.func.grad(lambda x: reference(x, bias).sum())(x).sum())(x.detach())
    same(hvp, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_dtypes(dtype: str) -> None:
    c_type = {"float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16"}[dtype]
    op = make(f"scaled<{c_type}>", {"y": "x"})
    x = torch.tensor([1.5, -2.0, 3.0], device="cuda", dtype=getattr(torch, dtype), requires_grad=True)
    op(x, torch.full_like(x, 2)).sum().backward()
    assert x.grad.dtype == x.dtype and x.grad.tolist() == [6, -8, 12]


def test_a_number_on_the_gpu_has_a_gradient() -> None:
    x, a = torch.ones(1000, device="cuda"), torch.tensor(2.0, device="cuda", requires_grad=True)
    GROW(x, a).sum().backward()
    assert a.grad.device.type == "cuda"
    same(a.grad.cpu(), 1000 * torch.tensor(1.0).exp())


def test_side_streams() -> None:
    x, bias = inputs(2000, 500)
    expected = torch.autograd.grad(reference(x, bias).sum(), (x, bias))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = GELU(x * 1, bias * 1)
        found = torch.autograd.grad(y.sum(), (x, bias))
    torch.cuda.current_stream().wait_stream(stream)
    same(found, expected)


def test_cuda_graphs() -> None:
    x, bias = inputs()

    def step() -> Any:
        y = GELU(x, bias)
        return (y, *torch.autograd.grad(y.sum(), (x, bias)))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for factor in (2.0, -1.0):
        with torch.no_grad():
            x.mul_(factor)
        graph.replay()
        y = reference(x, bias)
        same(captured, (y, *torch.autograd.grad(y.sum(), (x, bias))))


@pytest.mark.filterwarnings("ignore")
def test_compile() -> None:
    x, bias = inputs()
    loss = torch.compile(lambda x, bias: GELU(x * 2, bias).sin().sum(), fullgraph=True)(x, bias)
    expected = reference(x * 2, bias).sin().sum()
    same(torch.autograd.grad(loss, (x, bias)), torch.autograd.grad(expected, (x, bias)))


def test_autocast() -> None:
    x, bias = inputs()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = GELU(x.bfloat16(), bias)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, reference(x.bfloat16().float(), bias))


def test_cpu_and_gpu_agree() -> None:
    x, bias = inputs()
    found = torch.autograd.grad(GELU(x, bias).sum(), (x, bias))
    x, bias = (t.detach().cpu().requires_grad_() for t in (x, bias))
    expected = torch.autograd.grad(GELU(x, bias).sum(), (x, bias))
    for one, other in zip(found, expected, strict=True):
        same(one.cpu(), other)


def test_tensors_on_two_devices_are_refused() -> None:
    x, bias = inputs()
    with pytest.raises(kg.ArgumentError, match="'bias'.*lies on"):
        GELU(x, bias.detach().cpu())


COUNTED = """__global__ void counted(double *y, const double *x, const int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i], u = 0.5;
    for (int k = 0; k < steps[i]; k++) { v = sin(v) * u + 0.5 * v; u = cos(u * v); }
    y[i] = v * u;
}"""


def test_tapes_that_are_counted_in_cuda_graphs() -> None:
    kernel = kg.compile(COUNTED)["counted"]
    sizes = {"n": lambda x, **_: x.numel()}
    plain, given = (kg.torch.op(kernel, {"y": "x"}, sizes=sizes, tape_bytes=room) for room in (None, "8MB"))
    x = torch.randn(1000, device="cuda", dtype=torch.float64, requires_grad=True)
    steps = torch.arange(1000, device="cuda", dtype=torch.int32) % 20

    def step(op: Any) -> Any:
        return torch.autograd.grad(op(x, steps).sum(), x)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for op in (plain, given):
            same(step(op), step(plain))
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step(given)
    with torch.no_grad():
        x.mul_(0.7)
    graph.replay()
    same(found, step(plain))


def test_tapes_are_pytorchs_memory() -> None:
    op = kg.torch.op(kg.compile(COUNTED)["counted"], {"y": "x"}, sizes={"n": lambda x, **_: x.numel()})
    x = torch.randn(100_000, device="cuda", dtype=torch.float64, requires_grad=True)
    y = op(x, torch.full_like(x, 50, dtype=torch.int32)).sum()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.autograd.grad(y, x)
    assert torch.cuda.max_memory_allocated() - before > 100_000 * 50 * 8
    assert torch.cuda.memory_allocated() - before < 1_000_000  # PyTorch's own thread may still hold an adjoint


def test_a_batch_is_one_launch() -> None:
    x, bias = (t.detach() for t in inputs())
    batch = torch.stack([x, 2 * x, -x])
    same(torch.vmap(lambda x: GELU(x, bias))(batch), reference(batch, bias))
    loss = lambda f: lambda bias, x: f(x, bias).sin().sum()  # noqa: E731
    found = torch.vmap(torch.func.grad(loss(GELU)), in_dims=(None, 0))(bias, batch)
    same(found, torch.vmap(torch.func.grad(loss(reference)), in_dims=(None, 0))(bias, batch))


def test_pickled() -> None:
    import pickle

    op = pickle.loads(pickle.dumps(kg.torch.op(MODULE["grow"])))
    x = torch.ones(100, device="cuda", requires_grad=True)
    op(x, 2.0).sum().backward()
    same(x.grad.cpu(), torch.full((100,), 4 * torch.tensor(1.0).exp().item()))


def test_batches_of_vectors() -> None:
    kernel = kg.compile("""__global__ void vectors(float4 *y, const float4 *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = make_float4(x[i].x * x[i].y, x[i].y * x[i].z, x[i].z * x[i].w, x[i].w * x[i].x);
    }""")["vectors"]
    op = kg.torch.op(kernel, {"y": "x"}, grid=1, block=32, sizes={"n": lambda x, **_: x.numel() // 4})
    x = torch.rand(5, 8, 4, device="cuda")
    torch.testing.assert_close(torch.vmap(op)(x), x * x.roll(-1, 2))
    jacobian = torch.func.jacrev(lambda x: x * x.roll(-1, 1))
    torch.testing.assert_close(torch.vmap(torch.func.jacrev(op))(x), torch.vmap(jacobian)(x))


CAST = """
__global__ void k(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i >= n) return;
    float4 a = reinterpret_cast<const float4 *>(x)[i];
    a.x *= a.y;
    reinterpret_cast<float4 *>(y)[i] = a;
}"""


def test_gradients_of_a_part_that_is_read_as_vectors() -> None:
    """It begins where no `float4` may lie."""
    op = kg.torch.op(kg.compile(CAST)["k"], {"y": "x"}, grid=1, block=32, sizes={"n": lambda x, **_: x.numel()})
    x, seed = torch.rand(64, device="cuda", requires_grad=True), torch.rand(67, device="cuda")
    for _ in range(2):
        (d_x,) = torch.autograd.grad(torch.cat([torch.rand(3, device="cuda"), op(x)]), x, seed)
        expected = seed[3:].clone()
        expected[1::4] += seed[3::4] * x[::4].detach()
        expected[::4] *= x[1::4].detach()
        same(d_x, expected)
