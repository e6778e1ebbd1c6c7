"""Operators under `torch.vmap`: one launch where the kernel leaves the grid's z free, one after another elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402
from torch_kernels import MODULE, blocks, elementwise, numel, random, weighted  # noqa: E402

from kernelgrad.torch.launching import Launcher  # noqa: E402

WEIGHTED = elementwise("weighted", {"y": "x"})
X, W, A = random(3, 7, grad=False), random(7, grad=False, seed=1), random(1, grad=False)[0]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that were called on real tensors."""
    found: list[str] = []

    def watch(kind: str) -> None:
        method = getattr(Launcher, kind)

        def watched(self: Any, *args: Any) -> Any:
            found.append(kind)
            return method(self, *args)

        monkeypatch.setattr(Launcher, kind, watched)

    for kind in ("value", "tangent", "backward", "second"):
        watch(kind)
    return found


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def along(f: Any) -> Any:
    return lambda x: jvp(f, (x,), (torch.ones_like(x),))[1]


CASES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "value": (lambda f: vmap(lambda x: f(x, W)), ["value"]),
    "another dimension": (lambda f: lambda x: vmap(lambda x: f(x, W), in_dims=1)(x.T), ["value"]),
    "of the weights": (lambda f: lambda x: vmap(lambda w: f(x[0], w))(torch.stack([W, 2 * W])), ["value"]),
    "of both": (lambda f: lambda x: vmap(f)(x, torch.stack([W, 2 * W, -W])), ["value"]),
    "of the output": (lambda f: lambda x: vmap(lambda x: f(x, W), out_dims=1)(x), ["value"]),
    "grad": (lambda f: vmap(grad(lambda x: f(x, W).sin().sum())), ["value", "backward"]),
    "grad of what is shared": (
        lambda f: lambda x: vmap(grad(lambda w, x: f(x, w).sin().sum()), in_dims=(None, 0))(W, x),
        ["value", "backward"],
    ),
    "jvp": (lambda f: vmap(along(lambda x: f(x, W))), ["value", "tangent"]),
    "jacrev": (lambda f: lambda x: jacrev(lambda x: f(x, W))(x[0]), ["value", "backward"]),
    "jacfwd": (lambda f: lambda x: jacfwd(lambda x: f(x, W))(x[0]), ["value", "tangent"]),
    "hessian": (lambda f: lambda x: hessian(lambda x: f(x, W).sin().sum())(x[0]), []),
    "hessians": (lambda f: vmap(hessian(lambda x: f(x, W).sin().sum())), []),
    "grad of vmap": (
        lambda f: grad(lambda x: vmap(lambda x: f(x, W))(x).sin().sum()),
        ["value", "backward"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_launch(name: str, launched: list[str]) -> None:
    transformed, expected = CASES[name]
    close(transformed(lambda x, w: WEIGHTED(x, w, A))(X), transformed(lambda x, w: weighted(x, w, A))(X))
    assert not expected or launched == expected


def test_what_is_updated(launched: list[str]) -> None:
    grow = elementwise("grow")
    close(vmap(grow)(X), X.exp() * X)
    close(vmap(grad(lambda x: grow(x).sum()))(X), X.exp() * (X + 1))
    close(vmap(along(grow))(X), X.exp() * (X + 1))
    assert launched == ["value", "value", "backward", "value", "tangent"]


def test_sums_and_several_outputs(launched: list[str]) -> None:
    outputs = {"product": "x", "sum": (), "sign": "x"}
    both = kg.torch.op(MODULE["both"], outputs, grid=blocks, block=32, sizes={"n": numel}, fill={"sum": 2})
    product, total, sign = vmap(both, in_dims=(0, None))(X, W)
    close((product, total), (X * W, 2 + (X * X).sum(1)))
    assert sign.tolist() == X.sign().tolist()
    found = vmap(grad(lambda x: both(x, W)[1] * both(x, W)[0].sum()))(X)
    close(found, vmap(grad(lambda x: (2 + (x * x).sum()) * (x * W).sum()))(X))
    assert launched.count("value") == 3 and launched.count("backward") == 2


def test_indices(launched: list[str]) -> None:
    gather = kg.torch.op(MODULE["gather"], {"y": "index"}, grid=lambda n, **_: n, block=1)
    index = torch.tensor([[3, 0, 3], [1, 1, 1], [6, 0, 2]], dtype=torch.int32)
    for indices, dim in ((index[0], None), (index, 0)):
        for x, of_x in ((X, 0), (X[0], None)):
            if dim is None and of_x is None:
                continue
            f = lambda x, i: gather(x, i, 3).sum()  # noqa: E731
            expected = lambda x, i: (x[i.long()] ** 2).sum()  # noqa: E731
            rows = [(x if of_x is None else x[k], indices if dim is None else indices[k]) for k in range(3)]
            close(vmap(f, in_dims=(of_x, dim))(x, indices), torch.stack([expected(*row) for row in rows]))
            close(vmap(grad(f), in_dims=(of_x, dim))(x, indices), torch.stack([grad(expected)(*row) for row in rows]))
    assert launched == ["value", "value", "backward"] * 3


def test_two_dimensions_and_tapes(launched: list[str]) -> None:
    matmul = kg.torch.op(
        MODULE["product"],
        {"z": lambda x, y, **_: (x.shape[0], y.shape[1])},
        grid=lambda x, y, **_: ((y.shape[1] + 3) // 4, (x.shape[0] + 3) // 4),
        block=(4, 4),
        sizes={
            "rows": lambda x, **_: x.shape[0],
            "inner": lambda x, **_: x.shape[1],
            "columns": lambda y, **_: y.shape[1],
        },
    )
    x, y = random(3, 5, 6, grad=False), random(6, 2, grad=False, seed=1)
    close(vmap(matmul, in_dims=(0, None))(x, y), x @ y)
    loss = lambda f: lambda y, x: f(x, y).sin().sum()  # noqa: E731
    found = vmap(grad(loss(matmul)), in_dims=(None, 0))(y, x)
    close(found, vmap(grad(loss(torch.matmul)), in_dims=(None, 0))(y, x))
    iterate = kg.torch.op(MODULE["iterate"], grid=blocks, block=32, sizes={"n": numel})
    close(
        vmap(grad(lambda x: iterate(x, 2).sum()))(X),
        vmap(grad(lambda x: (x.sin() * x).sin().mul(x.sin() * x).sum()))(X),
    )
    assert launched == ["value", "value", "backward", "value", "backward"]


def test_numbers_of_their_own_go_one_after_another(launched: list[str]) -> None:
    a = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64)
    close(vmap(lambda x, a: WEIGHTED(x, W, a))(X, a), weighted(X, W, a[:, None]))
    assert launched == ["value"] * 3
    gradient = vmap(grad(lambda a, x: WEIGHTED(x, W, a).sum()), in_dims=(None, 0))(A, X)
    close(gradient, (X * X * W.sin()).sum(1))


def test_batches_in_batches(launched: list[str]) -> None:
    x = torch.stack([X, 2 * X])
    close(vmap(vmap(lambda x: WEIGHTED(x, W, A)))(x), weighted(x, W, A))
    assert launched == ["value"] * 2  # the kernel of a batch has a z


def test_kernels_with_a_z_go_one_after_another(launched: list[str]) -> None:
    text = """__global__ void planes(double *y, const double *x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x + n * blockIdx.z;
        if (blockIdx.x * blockDim.x + threadIdx.x < n) y[i] = x[i] * (1 + blockIdx.z);
    }"""
    op = kg.torch.op(kg.compile(text)["planes"], {"y": "x"}, grid=lambda n, **_: (n, 1, 2), block=1)
    x = random(3, 2, 4, grad=False)
    close(vmap(lambda x: op(x, 4))(x), x * torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    assert launched == ["value"] * 3
    launched.clear()
    flat = kg.torch.op(MODULE["weighted"], {"y": "x"}, grid=(1, 1, 2), block=32, sizes={"n": numel})
    close(vmap(lambda x: flat(x, W, 2.0))(X), weighted(X, W, 2.0))  # both of a launch's z do the same
    assert launched == ["value"] * 3


def test_promises_hold_for_one_entry(launched: list[str]) -> None:
    promised = kg.torch.op(
        MODULE["gather"], {"y": "index"}, grid=lambda n, **_: n, block=1, assume=kg.assume(unique="index")
    )
    index = torch.tensor([3, 0, 2], dtype=torch.int32)
    f = lambda x: promised(x, index, 3).sum()  # noqa: E731
    close(vmap(grad(f))(X), vmap(grad(lambda x: (x[index.long()] ** 2).sum()))(X))
    assert launched == ["value"] * 3 + ["backward"] * 3


def test_compiled() -> None:
    f = lambda x: vmap(grad(lambda x: WEIGHTED(x, W, A).sin().sum()))(x)  # noqa: E731
    reference = vmap(grad(lambda x: weighted(x, W, A).sin().sum()))
    close(torch.compile(f, fullgraph=True, backend="aot_eager")(X), reference(X))


VECTORS = kg.compile("""
__global__ void squares(double2 *y, const double2 *x, const double (*m)[2], int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = make_double2(x[i].x * x[i].x - x[i].y * m[0][1], 2 * x[i].x * x[i].y * m[1][0]);
}
__global__ void firsts(double *y, const double2 *x) { y[0] = x[0].x * x[0].y; }
""")


@pytest.mark.parametrize("name", ["value", "grad", "jvp", "jacrev", "jacfwd", "hessian", "hessians", "of the weights"])
def test_elements_of_several_numbers(name: str, launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of a `double2 *` is two numbers: entries are that many elements apart."""
    op = kg.torch.op(VECTORS["squares"], {"y": "x"}, grid=1, block=32, sizes={"n": lambda x, **_: x.numel() // 2})

    def plain(x: Any, w: Any) -> Any:
        a, b, m = x[::2], x[1::2], w.reshape(-1, 2)
        return torch.stack([a * a - b * m[0, 1], 2 * a * b * m[1, 0]], 1).reshape(-1)

    transformed, expected = CASES[name]
    x, w = random(3, 8, grad=False), random(4, grad=False, seed=1)
    monkeypatch.setitem(globals(), "W", w)
    close(transformed(lambda x, w: op(x, w))(x), transformed(plain)(x))
    assert not expected or launched == expected


def test_entries_of_half_an_element() -> None:
    op = kg.torch.op(VECTORS["firsts"], {"y": (1,)}, grid=1, block=1)
    with pytest.raises(kg.ArgumentError, match="wants a whole number of items of 16 bytes"):
        vmap(op)(random(4, 3, grad=False))
