"""Tensors of all kinds as inputs of operators and as gradients that come back to them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")
from torch_kernels import MODULE, elementwise, random, weighted  # noqa: E402

from kernelgrad.frameworks.alignments import alignments  # noqa: E402
from kernelgrad.torch.launching import Launcher  # noqa: E402

WEIGHTED = elementwise("weighted", {"y": "x"})
GROW, INFERRED = elementwise("grow"), kg.torch.op(MODULE["weighted"], {"y": "x"})


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def reference(x: Any) -> Any:
    return weighted(x, x, 1.5)


def lazily_negated() -> Any:
    return torch.view_as_complex(random(5, 2, grad=False)).conj().imag


def without_memory() -> Any:
    return torch._efficientzerotensor((5,), dtype=torch.float64)


SEEDS = {
    "expanded": lambda: random(1, grad=False).expand(5),
    "lazily negated": lazily_negated,
    "zeros without memory": without_memory,
    "sparse": lambda: torch.tensor([0.0, 1.0, 0.0, 0.0, 2.0], dtype=torch.float64).to_sparse(),
}


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("again", [False, True])
def test_gradients_that_come(name: str, again: bool) -> None:
    for op, plain in ((lambda x: WEIGHTED(x, x, 1.5), reference), (GROW, lambda x: torch.exp(x) * x)):
        x, seed = random(5), SEEDS[name]()
        dense = seed.to_dense() if seed.is_sparse else torch.zeros_like(seed) + seed
        if again:  # launches come again, with memory
            torch.autograd.grad(op(x), x, dense)
        close(*[torch.autograd.grad(f(x), x, s)[0] for f, s in ((op, seed), (plain, dense))])


@pytest.mark.parametrize("make", [lazily_negated, without_memory])
def test_inputs_that_lie_nowhere_as_they_are(make: Any) -> None:
    x = make()
    for _ in range(2):
        close(WEIGHTED(x, x, 1.5), reference(x))
        close(GROW(x), torch.exp(x) * x)


def test_inputs_must_be_dense() -> None:
    sparse = torch.ones(3, dtype=torch.float64).to_sparse()
    for _ in range(2):
        with pytest.raises(kg.ArgumentError, match="'x' .* wants a dense tensor, got one of torch.sparse_coo"):
            WEIGHTED(sparse, sparse, 1.0)
        WEIGHTED(random(3), random(3), 1.0)


def test_inputs_must_be_in_one_place() -> None:
    x, nowhere = random(3), torch.empty(3, dtype=torch.float64, device="meta")
    with pytest.raises(kg.ArgumentError, match="weighted: 'x' is on cpu, 'w' on meta: bring tensors to one device"):
        WEIGHTED(x, nowhere, 1.0)
    with pytest.raises(kg.ArgumentError, match="weighted: 'x' is on cpu, 'a' on meta"):
        WEIGHTED(x, x, nowhere[0])
    assert WEIGHTED(nowhere, nowhere, nowhere[0]).device.type == "meta"


def make(name: str, *args: Any, **settings: Any) -> kg.torch.Op:
    return kg.torch.op(MODULE[name], *args, **{"grid": 1, "block": 1, **settings})


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: make("weighted", {"x": "w"}), kg.ArgumentError, "'x' is no array that the kernel writes"),
        (lambda: make("weighted", {"z": "w"}), kg.ArgumentError, "'z' is no parameter"),
        (lambda: make("weighted", {"y": "n"}), kg.ArgumentError, "'y' cannot be like 'n'"),
        (lambda: make("weighted", {"y": "x"}, sizes={"a": 1}), kg.ArgumentError, "'a' is no integer parameter"),
        (lambda: make("stateful", {"y": "x"}), kg.UnsupportedError, "reads the variable 'STATE'"),
        (lambda: kg.torch.op(MODULE, grid=1, block=1), kg.ArgumentError, "got a module"),
        (lambda: WEIGHTED(random(3)), kg.ArgumentError, "wants x, w, a, got 1 by position"),
        (lambda: WEIGHTED(random(3), random(3), b=1), kg.ArgumentError, "got 2 by position and b by name"),
        (lambda: WEIGHTED(3, random(3), 1.0), kg.ArgumentError, r"'x' \(const double \*\) wants a tensor, got int"),
        (
            lambda: WEIGHTED(random(3), random(3), random(3)),
            kg.ArgumentError,
            "'a'.*floating-point tensor of one element, got",
        ),
        (
            lambda: INFERRED(random(3), random(3), 1.0, n=2.5),
            kg.ArgumentError,
            r"'n' \(int\) wants an integer, got float",
        ),
        (
            lambda: INFERRED(random(3), random(3), 1.0, n=torch.arange(2)),
            kg.ArgumentError,
            r"'n' \(int\) wants an integer, got a tensor of torch.int64 of shape \(2,\)",
        ),
        (lambda: WEIGHTED(random(3).float(), random(3), 1.0), kg.ArgumentError, "'x'.*float64.*got a float32"),
    ],
)
def test_errors(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_an_output_smaller_than_the_number_of_threads_is_refused() -> None:
    """n is the size of w, and y is like x."""
    kernel = kg.compile("""__global__ void gather(double *y, const double *x, const double *w, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = w[i] * x[n - 1 - i];
    }""")["gather"]
    op, ones = kg.torch.op(kernel, {"y": "x"}), torch.ones(5, dtype=torch.float64)
    assert op(ones, ones[:3])[:3].tolist() == [1, 1, 1]
    with pytest.raises(kg.ArgumentError, match="'y' has 3 elements, and n is 5"):
        op(ones[:3], ones)


PARTS = kg.compile("""__global__ void parts(double *y, double *z, const double *x, const double *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = x[i] * x[i]; if (i < n / 2) z[i] = x[i] * w[i]; }
}""")["parts"]


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_a_size_that_is_given(package: str) -> None:
    """What every thread reads or writes must be as large; what some do, only where the size is inferred."""
    if package == "jax":
        from jax_kernels import on_cpu

        jax = pytest.importorskip("jax")
        context, make, rand = on_cpu(), kg.jax.op, lambda n: jax.numpy.ones(n, "float64")
    else:
        context, make, rand = contextlib.nullcontext(), kg.torch.op, lambda n: torch.ones(n, dtype=torch.float64)
    with context:
        op = make(PARTS, {"y": "x", "z": "w"})
        y, z = op(rand(6), rand(3), n=6)
        assert y.tolist() == [1] * 6 and z.tolist() == [1] * 3
        with pytest.raises(kg.ArgumentError, match="'x' has 6 elements, 'w' has 3, and n is the size of both; pass n="):
            op(rand(6), rand(3))
        with pytest.raises(kg.ArgumentError, match="'z' has 3 elements, and n is 6: .* writes one; pass n="):
            make(PARTS, {"y": "x", "z": (3,)})(rand(6), rand(6))
        with pytest.raises(
            kg.ArgumentError, match="'x' has 6 elements, and n is 50: every thread before that reads one$"
        ):
            make(PARTS, {"y": (50,), "z": (50,)})(rand(6), rand(50), n=50)


def test_vectors_of_tensors_that_begin_anywhere() -> None:
    """Slices as inputs, and as gradients that come back: those of what was concatenated."""
    op = kg.torch.op(
        kg.compile("""__global__ void turn(float2 *y, const float2 *x, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = make_float2(x[i].x * x[i].y, x[i].x);
        }""")["turn"],
        {"y": "x"},
        sizes={"n": lambda x, **_: x.numel() // 2},
        grid=1,
    )

    def loss(f: Any) -> Any:
        return lambda x: (torch.cat([x[:1], f(x[1:])]) ** 2).sum()

    def plain(x: Any) -> Any:
        return torch.stack([x[::2] * x[1::2], x[::2]], 1).reshape(-1)

    x = torch.arange(7.0, requires_grad=True)
    for grad in (lambda f: torch.autograd.grad(f(x), x)[0], lambda f: torch.func.grad(f)(x.detach())):
        for _ in range(4):
            torch.testing.assert_close(grad(loss(op)), grad(loss(plain)))
    slices = x.detach()[1:], x.detach()[:-1]
    torch.testing.assert_close(*[torch.func.jvp(f, slices[:1], slices[1:])[1] for f in (op, plain)])


TIMES = """__global__ void times(double *x, const double *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { x[i] *= w[i]; x[i] = sin(x[i]); }
}"""
SHARED = {
    "the same": lambda x: (x, x),
    "detached": lambda x: (x, x.detach()),
    "overlapping": lambda x: (x[:5], x[2:]),
}


@pytest.mark.parametrize("name", SHARED)
def test_what_is_updated_may_be_another_argument_too(name: str) -> None:
    op, plain = kg.torch.op(kg.compile(TIMES)["times"]), lambda x, w: (x * w).sin()
    ours, expected = (lambda x, f=f: f(*SHARED[name](x)).exp().sum() for f in (op, plain))
    for _ in range(3):
        x = random(7)
        close(torch.autograd.grad(ours(x), x), torch.autograd.grad(expected(x), x))
    close(*[torch.func.hessian(f)(x.detach()) for f in (ours, expected)])


def test_a_size_that_is_given_by_name_leaves_the_others_where_they_are() -> None:
    text = """__global__ void power(double *y, const double *x, int n, int k) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) { double v = 1; for (int j = 0; j < k; j++) v *= x[i]; y[i] = v; }
    }"""
    op, x = kg.torch.op(kg.compile(text)["power"], {"y": "x"}), torch.full((3,), 2.0, dtype=torch.float64)
    for found in (op(x, 3, n=2), op(x, 2, 3), op(x, n=2, k=3), torch.func.vmap(lambda x: op(x, 3, n=2))(x[None])[0]):
        assert found.tolist() == [8, 8, 0]
    assert torch.compile(lambda x: op(x, 3, n=2), fullgraph=True, backend="aot_eager")(x).tolist() == [8, 8, 0]
    for wrong in (lambda: op(x, 3, 2, n=2), lambda: op(x, n=2), lambda: op(x, 3, x=x), lambda: op(x, 2, 3, 4)):
        with pytest.raises(kg.ArgumentError, match="wants x, k, got"):
            wrong()


CAST = """
__device__ float4 load(const float *p) { return *reinterpret_cast<const float4 *>(p); }
__global__ void k(float *y, const float *x, const float *w, const float2 *v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i >= n) return;
    float4 a = load(x + 4 * i);
    a.x *= a.y * w[i] + v[i].x;
    reinterpret_cast<float4 *>(y)[i] = a;
}"""


def test_gradients_come_at_addresses_as_the_kernel_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a larger gradient, behind `cat`, of what the kernel writes as `float4`."""
    kernel = kg.compile(CAST)["k"]
    assert alignments(kernel) == {"y": 16, "x": 16, "v": 8}
    op = kg.torch.op(kernel, {"y": "x"}, grid=1, block=32, sizes={"n": lambda x, **_: x.numel()})
    x, w, v = (torch.rand(count, requires_grad=True) for count in (64, 16, 32))
    came: list[int] = []
    used: list[int] = []
    plain = Launcher.plain

    def watched(self: Any, name: str, tensor: Any) -> Any:
        found = plain(self, name, tensor)
        used.extend([found.data_ptr() % 16] if name == "y" else [])
        return found

    monkeypatch.setattr(Launcher, "plain", watched)
    for _ in range(2):
        y, seed = op(x, w, v), torch.rand(67)
        y.register_hook(lambda d_y: came.append(d_y.data_ptr() % 16))
        (d_w,) = torch.autograd.grad(torch.cat([torch.rand(3), y]), w, seed)
        torch.testing.assert_close(d_w, (seed[3::4] * x[::4] * x[1::4]).detach())
    assert came == [12, 12] and used == [0, 0]
