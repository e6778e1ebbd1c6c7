"""PyTorch's graph does not see launches: tensors in it are refused, and writes are counted."""

import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")

K = kg.compile("__global__ void k(float *y, const float *x) { y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }")["k"]
HALF = kg.compile(
    "#include <cuda_fp16.h>\n__global__ void k(__half *y, const __half *x) { y[threadIdx.x] = x[threadIdx.x]; }"
)["k"]


def test_a_tensor_that_requires_grad_is_refused_while_a_graph_is_recorded() -> None:
    x, y = torch.full((4,), 3.0, requires_grad=True), torch.zeros(4)
    with pytest.raises(kg.ArgumentError, match=r"'x'.*requires grad(.|\n)*kg.torch.op\(kernel\)(.|\n)*x.detach\(\)"):
        K[1, 4](y, x)
    with pytest.raises(kg.ArgumentError, match="'y'.*requires grad"):
        K[1, 4](x, y)
    K[1, 4](y, x.detach())
    with torch.no_grad():
        K[1, 4](y, x)
    assert y.tolist() == [9.0] * 4


def test_so_is_a_number_that_requires_grad() -> None:
    scale = kg.compile("__global__ void k(float *y, float a) { y[threadIdx.x] = a; }")["k"]
    y, a = torch.zeros(4), torch.tensor(3.0, requires_grad=True)
    with pytest.raises(kg.ArgumentError, match=r"'a'.*requires grad(.|\n)*x.detach\(\)"):
        scale[1, 4](y, a)
    scale[1, 4](y, a.detach())
    assert y.tolist() == [3.0] * 4


def test_a_function_of_autograd_needs_no_detaching() -> None:
    gradient = kg.gradient(K, "y, x", primal=False, keep="y")

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            y = torch.empty_like(x)
            K[1, 4](y, x)
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, d_y):  # type: ignore[no-untyped-def]
            (x,) = ctx.saved_tensors
            d_x = torch.zeros_like(x)
            gradient[1, 4](None, x, d_y.contiguous(), d_x)
            return d_x

    x = torch.arange(4.0, requires_grad=True)
    Square.apply(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_graph_that_saved_what_a_launch_writes_refuses_to_go_on() -> None:
    w, y = torch.ones(4, requires_grad=True), torch.ones(4)
    loss = (w * y).sum()
    K[1, 4](y, torch.ones(4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_only_what_is_written_counts() -> None:
    x, y, d_x, d_y = (torch.ones(4) for _ in range(4))
    K[1, 4](y, x)
    assert (x._version, y._version) == (0, 1)
    kg.gradient(K, "y, x")[1, 4](y, x, d_y, d_x)
    assert x._version == 0
    assert d_x._version > 0 and d_y._version > 0
    with torch.inference_mode():
        K[1, 4](torch.zeros(4), x)


def test_adjoints_in_half_precision_count_too() -> None:
    y, x, d_y, d_x = (torch.ones(4, dtype=torch.float16) for _ in range(4))
    kg.gradient(HALF, "y, x")[1, 4](y, x, d_y, d_x)
    assert d_x._version > 0
    assert d_x.tolist() == [2.0] * 4


def test_and_are_refused_where_they_require_grad() -> None:
    y, x, d_y = (torch.ones(4, dtype=torch.float16) for _ in range(3))
    with pytest.raises(kg.ArgumentError, match="'d_x'.*requires grad"):
        kg.gradient(HALF, "y, x")[1, 4](y, x, d_y, torch.zeros_like(x, requires_grad=True))
