"""Calls that come again (Note [Prepared calls]) with tensors that are not what the calls before had."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")
from torch_kernels import MODULE, elementwise, random, weighted  # noqa: E402

N = 6
OTHERS = {
    "the same": lambda: random(N, grad=False),
    "every other": lambda: random(2 * N, grad=False)[::2],
    "not aligned": lambda: random(N + 1, grad=False)[1:],
    "a part": lambda: random(N + 2, grad=False)[:N],
    "expanded": lambda: random(1, grad=False).expand(N),
    "lazily negated": lambda: torch.view_as_complex(random(N, 2, grad=False)).conj().imag,
    "without memory": lambda: torch._efficientzerotensor((N,), dtype=torch.float64),
}


def prepared(op: Any, *args: Any) -> kg.torch.Op:
    """An operator after calls that prepare the next one."""
    for _ in range(3):
        op(*args).sum().backward()
    plans = [plan for plan in op._plans.values() if plan.wanted]
    assert plans and all(plan.prepared for plan in plans)
    assert all(backward._prepared for plan in plans for backward in plan.backwards.values())
    return op


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kernel", ["weighted", "grow"])
def test_other_tensors(name: str, kernel: str) -> None:
    if kernel == "weighted":
        op = prepared(elementwise("weighted", {"y": "x"}), random(N), random(N), 1.5)
        run, plain = (lambda x: op(x, x, 1.5)), (lambda x: weighted(x, x, 1.5))
    else:
        run, plain = prepared(elementwise("grow"), random(N)), (lambda x: torch.exp(x) * x)
    for x, seed in ((OTHERS[name](), random(N, grad=False)), (random(N, grad=False), OTHERS[name]())):
        found = []
        for f in (run, plain):
            leaf = x.detach().requires_grad_()
            y = f(leaf)
            found.append((y.detach(), *torch.autograd.grad(y, leaf, seed)))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_sparse_tensors_and_numbers_that_do_not_fit() -> None:
    op = prepared(kg.torch.op(MODULE["weighted"], {"y": "x"}), random(N), random(N), 1.5)
    with pytest.raises(kg.ArgumentError, match="wants a dense tensor"):
        op(random(N, grad=False).to_sparse().requires_grad_(), random(N), 1.5)
    with pytest.raises((kg.ArgumentError, OverflowError)):
        op(random(N), random(N), 10**400)
    with pytest.raises(kg.ArgumentError, match="'x'.*float64.*got a float32"):
        op(random(N).detach().float().requires_grad_(), random(N), 1.5)


def test_the_users_functions_are_asked_each_time() -> None:
    """Here the grid leaves out what it once did."""
    blocks = [2]
    kernel = kg.compile("""__global__ void twice(double *y, const double *x) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = 2 * x[i];
    }""")["twice"]
    op = kg.torch.op(kernel, {"y": "x"}, grid=lambda x, **_: blocks[0], block=3)
    x = torch.ones(N, dtype=torch.float64, requires_grad=True)
    prepared(op, x)
    blocks[0] = 1
    assert op(x).tolist() == [2, 2, 2, 0, 0, 0]
    assert torch.autograd.grad(op(x).sum(), x)[0].tolist() == [2, 2, 2, 0, 0, 0]


def test_a_number_is_a_tensor_or_not() -> None:
    op, x, w, a = elementwise("weighted", {"y": "x"}), random(N), random(N), torch.tensor(1.5, requires_grad=True)
    prepared(op, x, w, 1.5)
    prepared(op, x, w, a)
    expected = torch.autograd.grad(weighted(x, w, a).sum(), (x, a))
    for ours, theirs in zip(torch.autograd.grad(op(x, w, a).sum(), (x, a)), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(op(x, w, 2.0).sum(), x)[0], expected[0] * 2 / 1.5)


def test_gradients_that_came_are_not_kept() -> None:
    op, x, w = kg.torch.op(MODULE["weighted"], {"y": "x"}), random(6, 7), random(6, 7)
    came: list[Any] = []
    for _ in range(3):
        seed = random(6, 7, grad=False)
        came.append(weakref.ref(seed))
        torch.autograd.grad(op(x, w, 1.0), x, seed)
        del seed
    assert [ref() for ref in came] == [None] * 3


def test_backwards_of_one_plan_take_turns() -> None:
    """Of either output or both, in deterministic mode or not, while a program is recorded."""
    text = """__global__ void two(double *a, double *b, const double *x, const double *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) { a[i] = x[i] * x[i] * y[0]; b[i] = sin(x[i]) * y[0]; }
    }"""
    op, x, y = kg.torch.op(kg.compile(text)["two"], {"a": "x", "b": "x"}), random(6), random(1, seed=1)
    for k in range(24):
        (a, b), torch_a, torch_b = op(x, y), x * x * y, x.sin() * y
        ours, expected = [(a, torch_a), (b, torch_b), (a + 2 * b, torch_a + 2 * torch_b)][k // 2 % 3]
        torch.use_deterministic_algorithms(k % 8 > 5)
        try:
            torch.testing.assert_close(*[torch.autograd.grad(f.sum(), (x, y)) for f in (ours, expected)])
        finally:
            torch.use_deterministic_algorithms(False)
    total = op(x, y)[0].sum()
    with kg.record(), pytest.raises(kg.TapeError, match="an operator of PyTorch"):
        total.backward()
