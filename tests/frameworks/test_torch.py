"""`kg.torch.op`: what operators compute, in every mode of differentiation that PyTorch has."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from typing import Any

import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402
from torch_kernels import MODULE, blocks, elementwise, numel, random, weighted  # noqa: E402

WEIGHTED = elementwise("weighted", {"y": "x"})


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_what_private_names_of_torch_are_used() -> None:
    """Where this fails, Note [One function for every transformation] in torch/formulas.py has to be thought of anew."""
    from torch._functorch.utils import enable_single_level_autograd_function
    from torch.autograd.forward_ad import _set_fwd_grad_enabled
    from torch.autograd.function import _SingleLevelFunction

    for name in ("apply", "save_for_forward", "mark_non_differentiable", "set_materialize_grads"):
        assert hasattr(_SingleLevelFunction, name)
    for name in (
        "_AutoDispatchBelowAutograd",
        "_ExcludeDispatchKeyGuard",
        "DispatchKeySet",
        "_will_engine_execute_node",
    ):
        assert hasattr(torch._C, name)
    with enable_single_level_autograd_function(), _set_fwd_grad_enabled(True):
        assert torch._VF._unpack_dual(torch.ones(1), 0)[0].item() == 1


def test_value_and_gradients() -> None:
    x, w, a = random(3, 50), random(3, 50, seed=1), random(1).sum().detach().requires_grad_()
    y = WEIGHTED(x, w, a)
    close(y, weighted(x, w, a))
    seed = random(3, 50, grad=False, seed=2)
    close(torch.autograd.grad(y, (x, w, a), seed), torch.autograd.grad(weighted(x, w, a), (x, w, a), seed))


def test_a_number_may_be_a_number() -> None:
    x, w = random(5), random(5, seed=1)
    y = WEIGHTED(w=w, x=x, a=2)
    close(torch.autograd.grad(y.sum(), x)[0], 4 * (x * w.sin()))


def test_gradcheck() -> None:
    inputs = (random(4), random(4, seed=1), random(1).sum().detach().requires_grad_())
    assert gradcheck(WEIGHTED, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert gradgradcheck(WEIGHTED, inputs, check_fwd_over_rev=True, check_rev_over_rev=True)


def three_inputs() -> tuple[Any, Any]:
    """Inputs of `loss_of`, and vectors of their shapes."""
    inputs = (random(4, grad=False), random(4, grad=False, seed=1), torch.tensor(1.7, dtype=torch.float64))
    return inputs, (
        random(4, grad=False, seed=2),
        random(4, grad=False, seed=3),
        torch.tensor(0.3, dtype=torch.float64),
    )


def loss_of(op: Any, grow: Any) -> Any:
    def loss(x: Any, w: Any, a: Any) -> Any:
        y = op(x, w, a)
        return (y * y * w).sum() + (grow(y) * x).sum()

    return loss


OURS, PLAIN = loss_of(WEIGHTED, elementwise("grow")), loss_of(weighted, lambda y: y.exp() * y)


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", ["hvp", "vhp", "hessian"])
def test_autograd_functional(name: str, create_graph: bool) -> None:
    """`hvp` is a backward of a backward of a backward: the last one along the vector, in which all is linear."""
    inputs, vectors = three_inputs()
    function = getattr(torch.autograd.functional, name)
    found, expected = (
        function(f, inputs, *([] if name == "hessian" else [vectors]), create_graph=create_graph, strict=True)
        for f in (OURS, PLAIN)
    )
    close(found, expected)


def along(f: Any, x: Any, w: Any, a: Any) -> Any:
    """A vector to the Hessian times it, by two backwards."""
    return lambda v: vjp(grad(lambda x: f(x, w, a)), x)[1](v)[0]


def by_grad(f: Any, inputs: Any, v: Any) -> Any:
    (x, w, a), v = inputs, v.clone().requires_grad_()
    found = torch.autograd.functional.hvp(lambda x: f(x, w, a), x, v, create_graph=True)[1]
    return torch.autograd.grad(found.square().sum(), v)[0]


LINEAR = {
    "grad": lambda f, inputs, v: grad(lambda v: along(f, *inputs)(v).square().sum())(v),
    "jvp": lambda f, inputs, v: jvp(along(f, *inputs), (v,), (inputs[1],)),
    "jacrev": lambda f, inputs, v: jacrev(along(f, *inputs))(v),
    "vmap": lambda f, inputs, v: vmap(along(f, *inputs))(torch.stack([v, 2 * v])),
    "autograd": by_grad,
}


@pytest.mark.parametrize("name", LINEAR)
def test_hessian_vector_products_are_linear_in_the_vector(name: str) -> None:
    inputs, vectors = three_inputs()
    close(*[LINEAR[name](f, inputs, vectors[0]) for f in (OURS, PLAIN)])


def test_no_third_derivative_comes_out() -> None:
    (x, w, a), (v, *_) = three_inputs()
    x.requires_grad_()
    found = torch.autograd.functional.hvp(lambda x: OURS(x, w, a), x, v, create_graph=True)[1]
    for ask in (lambda: torch.autograd.grad(found.sum(), x, retain_graph=True), lambda: found.sum().backward()):
        with pytest.raises(kg.UnsupportedError, match="first and second derivatives"):
            ask()
    alone = lambda x, w, a: WEIGHTED(x, w, a).sum()  # noqa: E731
    with pytest.raises(kg.UnsupportedError, match="first and second derivatives"):
        jvp(lambda x: along(alone, x, w, a)(v), (x.detach(),), (v,))


def test_in_place_kernels_return_new_contents() -> None:
    op, x = elementwise("grow"), random(2, 4)
    before, version = x.detach().clone(), x._version
    close(op(x), x.exp() * x)
    assert x._version == version and torch.equal(x, before)
    assert gradcheck(op, (x,), check_forward_ad=True) and gradgradcheck(op, (x,), check_fwd_over_rev=True)


def test_what_the_kernel_overwrites_on_the_way_is_made_again() -> None:
    op = kg.torch.op(MODULE["iterate"], grid=blocks, block=32, sizes={"n": numel})

    def reference(x: Any, steps: int) -> Any:
        for _ in range(steps):
            x = x.sin() * x
        return x

    x = random(4)
    close(op(x, 3), reference(x, 3))
    assert gradcheck(lambda x: op(x, 3), (x,), check_forward_ad=True)
    close(hessian(lambda x: op(x, 3).sum())(x.detach()), hessian(lambda x: reference(x, 3).sum())(x.detach()))


def test_opcheck() -> None:
    for a in (1.5, random(1).sum().detach().requires_grad_()):
        packed = WEIGHTED._arguments({"x": random(2, 3), "w": random(2, 3, seed=1), "a": a, "n": 6})
        assert set(torch.library.opcheck(WEIGHTED._operator, tuple(packed)).values()) == {"SUCCESS"}
    both = kg.torch.op(MODULE["both"], BOTH, grid=blocks, block=32, sizes={"n": numel})
    packed = both._arguments({"x": random(5), "w": random(5, seed=1), "n": 5})
    assert set(torch.library.opcheck(both._operator, tuple(packed)).values()) == {"SUCCESS"}


# ---- torch.func ------------------------------------------------------------------------------------------------------

W, A = random(5, grad=False, seed=1), random(1, grad=False)[0]
TRANSFORMATIONS = {
    "grad": grad,
    "vjp": lambda f: lambda x: vjp(f, x)[1](torch.ones((), dtype=x.dtype))[0],
    "jvp": lambda f: lambda x: jvp(f, (x,), (torch.ones_like(x),))[1],
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": hessian,
    "jvp of grad": lambda f: lambda x: jvp(grad(f), (x,), (torch.ones_like(x),))[1],
    "grad of jvp": lambda f: grad(lambda x: jvp(f, (x,), (torch.ones_like(x),))[1]),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f)),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(f)),
    "vmap": lambda f: lambda x: vmap(f)(torch.stack([x, 2 * x], 1).T),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(torch.stack([x, 2 * x])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f, in_dims=1)(torch.stack([x, 2 * x], 1)).sum()),
    "vmap of vmap": lambda f: lambda x: vmap(vmap(f))(torch.stack([x, 2 * x, 3 * x, x]).reshape(2, 2, -1)),
    "vmap of hessian": lambda f: lambda x: vmap(hessian(f))(torch.stack([x, 2 * x])),
    "vmap of nothing": lambda f: lambda x: vmap(f)(x.new_zeros(0, 5)),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformations(name: str) -> None:
    transformed = TRANSFORMATIONS[name]
    found = transformed(lambda x: WEIGHTED(x, W, A).sum())(random(5, grad=False))
    close(found, transformed(lambda x: weighted(x, W, A).sum())(random(5, grad=False)))


def test_forward_over_forward_is_refused() -> None:
    f = TRANSFORMATIONS["jvp"](lambda x: WEIGHTED(x, W, A).sum())
    with pytest.raises(kg.UnsupportedError, match="forward mode over forward mode"):
        TRANSFORMATIONS["jvp"](f)(random(5, grad=False))


def test_a_third_derivative_is_refused() -> None:
    f = lambda x: WEIGHTED(x, W, A).sum()  # noqa: E731
    with pytest.raises(kg.UnsupportedError, match="first and second derivatives"):
        grad(lambda x: grad(lambda x: grad(f)(x).sum())(x).sum())(random(5, grad=False))


def test_dual_numbers() -> None:
    x = random(5)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        tangent = forward_ad.unpack_dual(WEIGHTED(dual, W, A)).tangent
        close(tangent, 2 * A * x * W.sin())
        close(torch.autograd.grad(tangent.sum(), x)[0], 2 * A * W.sin())


# ---- inputs and outputs ----------------------------------------------------------------------------------------------

BOTH = {"product": "x", "sum": (), "sign": "x"}


def test_several_outputs_of_which_some_have_no_gradient() -> None:
    op = kg.torch.op(MODULE["both"], BOTH, grid=blocks, block=32, sizes={"n": numel})
    x, w = random(5), random(5, seed=1)
    product, total, sign = op(x, w)
    close((product, total), (x * w, (x * x).sum()))
    assert sign.tolist() == x.sign().tolist() and sign.dtype == torch.int32 and not sign.requires_grad
    close(torch.autograd.grad(total, x, retain_graph=True)[0], 2 * x)
    close(torch.autograd.grad(product.sum() + 3 * total, (x, w)), (w + 6 * x, x))
    assert gradcheck(lambda x, w: op(x, w)[:2], (x, w), check_forward_ad=True)
    close(hessian(lambda x: op(x, w.detach())[1])(x.detach()), 2 * torch.eye(5, dtype=torch.float64))


def test_second_derivatives_where_one_of_two_outputs_is_used() -> None:
    text = """__global__ void two(double *a, double *b, const double *x, const double *y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) { a[i] = x[i] * x[i] * y[i]; b[i] = sin(x[i]) * y[i]; }
    }"""
    op = kg.torch.op(kg.compile(text)["two"], {"a": "x", "b": "x"})
    x, y = random(4), random(4, seed=1)
    for k, of in ((0, lambda x, y: x * x * y), (1, lambda x, y: x.sin() * y)):
        for place in (0, 1):
            by_op = jacrev(jacrev(lambda x, y, k=k: op(x, y)[k].prod(), place), place)(x, y)
            torch.testing.assert_close(by_op, hessian(lambda x, y, of=of: of(x, y).prod(), place)(x, y))
        assert gradgradcheck(lambda x, y, k=k: op(x, y)[k], (x, y))


def test_outputs_start_from_what_is_asked_for() -> None:
    op = kg.torch.op(MODULE["both"], BOTH, grid=blocks, block=32, sizes={"n": numel}, fill={"sum": 10, "product": None})
    x = random(5)
    close(op(x, x)[1], 10 + (x * x).sum())


def test_integers_and_shapes_by_functions() -> None:
    op = kg.torch.op(MODULE["gather"], {"y": "index"}, grid=lambda n, **_: n, block=1)
    x, index = random(4), torch.tensor([3, 0, 3], dtype=torch.int32)
    assert gradcheck(lambda x: op(x, index, 3), (x,), check_forward_ad=True)
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
    x, y = random(3, 5), random(5, 2, seed=1)
    close(matmul(x, y), x @ y)
    assert gradcheck(matmul, (x, y), check_forward_ad=True) and gradgradcheck(matmul, (x, y))


def test_inputs_that_are_not_contiguous() -> None:
    x, w = random(6, 4), random(4, 1, seed=1)
    y = WEIGHTED(x.T, w.expand(4, 6), 1.0)
    close(y, weighted(x.T, w, 1.0))
    seed = random(6, 4, grad=False, seed=2).T
    close(torch.autograd.grad(y, (x, w), seed), torch.autograd.grad(weighted(x.T, w, 1.0), (x, w), seed))
    close(torch.autograd.grad(WEIGHTED(x, x, 1.0).sum(), x), torch.autograd.grad(weighted(x, x, 1.0).sum(), x))


def test_tensors_without_elements() -> None:
    x, w, a = random(0), random(0), random(1).sum().detach().requires_grad_()
    y = WEIGHTED(x, w, a)
    assert y.shape == (0,)
    assert torch.autograd.grad(y.sum(), a)[0].item() == 0
    assert jvp(lambda x: WEIGHTED(x, w, a), (x,), (x,))[1].shape == (0,)


def test_half_precision() -> None:
    op, x = elementwise("halves", {"y": "x"}), torch.tensor([1.5, -2.0], dtype=torch.float16, requires_grad=True)
    op(x).sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float16 and x.grad.tolist() == [3, -4]


def test_second_derivatives_in_half_precision() -> None:
    op, x = elementwise("halves", {"y": "x"}), torch.tensor([1.5, -2.0], dtype=torch.float16)
    found = hessian(lambda x: op(x).sum())(x)
    assert found.dtype == torch.float16 and found.tolist() == [[2, 0], [0, 2]]


def test_gradients_that_share_memory_with_inputs() -> None:
    x, w = random(5), random(5, seed=1)
    close(torch.autograd.grad(WEIGHTED(x, w, 1.0), x, x.detach())[0], 2 * x * w.sin() * x)


def test_models_with_operators_are_copied() -> None:
    assert copy.deepcopy([WEIGHTED])[0] is WEIGHTED


def test_operators_are_pickled() -> None:
    again = pickle.loads(pickle.dumps(WEIGHTED))
    assert again.name == WEIGHTED.name and repr(again) == repr(WEIGHTED)
    x, w = random(5), random(5, seed=1)
    close(torch.autograd.grad(again(x, w, 2.0).sum(), (x, w)), torch.autograd.grad(WEIGHTED(x, w, 2.0).sum(), (x, w)))
    with pytest.raises(pickle.PicklingError, match="scaled has variables besides its arguments"):
        pickle.dumps(elementwise("scaled", {"y": "x"}))


def test_settings_are_pickled() -> None:
    asked = {
        "deterministic": True,
        "tape_budget": 1 << 20,
        "tape_bytes": 1 << 10,
        "report_nan": True,
        "fill": {"y": 2.0},
    }
    op = kg.torch.op(MODULE["gather"], {"y": "index"}, shared=8, block=64, assume=kg.assume(unique="index"), **asked)
    again = pickle.loads(pickle.dumps(op))
    assert again._registered is op._registered and (again._shared, again._block) == (8, 64)


def test_another_process_unpickles_them_and_names_them_the_same() -> None:
    filled = elementwise("weighted", {"y": "x"}, fill={"y": 3}, deterministic=True)
    code = """
import pickle, sys, torch
op = pickle.load(sys.stdin.buffer)
x = torch.ones(3, dtype=torch.float64, requires_grad=True)
op(x, x.detach(), 2.0).sum().backward()
from torch_kernels import elementwise
print(op.name, x.grad[0].item(), elementwise("weighted", {"y": "x"}).name)"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(filled), capture_output=True, check=True, env=_environment()
    )
    name, found, made = done.stdout.decode().split()
    assert name == filled.name and abs(float(found) - 4 * math.sin(1)) < 1e-12
    assert made == WEIGHTED.name != name


def test_the_backward_takes_what_it_needs_alone() -> None:
    """No code of the kernel's own; the seeds stay as they are; gradients are written, not added to."""
    reverse = WEIGHTED._registered.launcher.derived.reverse(False)
    settings = reverse.gradient.settings
    assert not reverse.joint and settings.mode == "reverse"
    assert settings.kept == ("y",) and set(settings.assigned) == {"x", "w", "a"}
    x, w, seed = random(5), random(5, seed=1), random(5, grad=False, seed=2)
    before = seed.clone()
    for _ in range(4):
        y = WEIGHTED(x, w, 2.0)
        close(torch.autograd.grad(y, x, seed)[0], 4 * x * w.sin() * seed)
        assert torch.equal(seed, before) and seed._version == 0


def test_calls_that_come_again() -> None:
    """Shapes, numbers, parts of larger tensors, and inputs that need gradients change between calls."""
    inferred = kg.torch.op(MODULE["weighted"], {"y": "x"})
    for op in (WEIGHTED, inferred):
        for k in range(24):
            n, a = (5, 6, 64)[k % 3], 0.5 * k
            whole = random(2, n, seed=k).detach()
            x = whole[k % 2].clone() if k % 4 else whole[k % 2]  # a part of it
            x, w = x.requires_grad_(k % 5 > 0), random(n, grad=k % 3 > 0, seed=k + 1)
            y = op(x, w, a) if k % 7 else op(x, w, torch.tensor(a, dtype=torch.float64, requires_grad=True))
            expected = weighted(x, w, a)
            close(y, expected)
            wanted = [t for t in (x, w) if t.requires_grad]
            if wanted:
                seed = random(n, grad=False, seed=k + 2)
                found = torch.autograd.grad(y, wanted, seed, create_graph=k % 2 == 0)
                for one, other in zip(found, torch.autograd.grad(expected, wanted, seed), strict=True):
                    close(one.detach(), other)


def test_calls_among_modes_and_transformations() -> None:
    """What was plain before is not while something is on, and is again afterwards."""
    x, w = random(5), random(5, seed=1)
    for _ in range(3):
        close(torch.autograd.grad(WEIGHTED(x, w, 2.0).sum(), x)[0], 4 * x * w.sin())
        close(grad(lambda x: WEIGHTED(x, w, 2.0).sum())(x), 4 * x * w.sin())
        close(vmap(lambda x: WEIGHTED(x, w, 2.0))(x.expand(2, 5))[1], 2 * x * x * w.sin())
        with torch.inference_mode():
            assert WEIGHTED(x, w, 2.0).is_inference()
        with torch.no_grad():
            assert not WEIGHTED(x, w, 2.0).requires_grad
        with torch.device("meta"), torch.profiler.profile():
            close(WEIGHTED(x, w, 2.0), 2 * x * x * w.sin())
        with torch.device("meta"):
            close(WEIGHTED(x, w, 2.0), 2 * x * x * w.sin())
        assert WEIGHTED(x.to("meta"), w.to("meta"), 2.0).shape == x.shape
        y = WEIGHTED(x, w, 2.0)
        batched = torch.autograd.grad(y, x, torch.eye(5, dtype=torch.float64), is_grads_batched=True)[0]
        close(batched, torch.diag(4 * x * w.sin()))
        close(-WEIGHTED(torch._neg_view(x), w, 2.0), -2 * x * x * w.sin())


COUNTED = """__global__ void counted(double *y, const double *x, const int *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i], u = 0.5;
    for (int k = 0; k < steps[i]; k++) { v = sin(v) * u + 0.5 * v; u = cos(u * v); }
    y[i] = v * u;
}"""


def test_tapes_are_pytorchs_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgrad.runtime import scratch
    from kernelgrad.torch import launching

    lent: list[int] = []

    def lend(nbytes: int, device: Any, stream: int) -> Any:
        lent.append(nbytes)
        return given(nbytes, device, stream)

    given = launching.lend
    monkeypatch.setattr(launching, "lend", lend)
    op = kg.torch.op(kg.compile(COUNTED)["counted"], {"y": "x"}, sizes={"n": numel})
    x, steps = random(20), torch.arange(20, dtype=torch.int32)
    for make in (lambda: op(x, steps).sum(), lambda: vmap(lambda x: op(x, steps))(x[None]).sum()):
        lent.clear()
        assert gradcheck(lambda x: op(x, steps), (x,))
        make().backward()
        assert max(lent) >= 190 * 8  # 0 + 1 + ... + 19 iterations are kept
    assert scratch.LENDER.get() is None


def test_tapes_of_a_given_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgrad.launches.memory import tape_memory

    kernel, x, steps = kg.compile(COUNTED)["counted"], random(20), torch.arange(20, dtype=torch.int32)

    def gradient(**settings: Any) -> Any:
        op = kg.torch.op(kernel, {"y": "x"}, sizes={"n": numel}, block=8, **settings)
        return torch.autograd.grad(op(x, steps).sum(), x)[0]

    expected = gradient()
    close(gradient(tape_bytes="64kB"), expected)
    with pytest.raises(kg.LaunchError, match="counted: tape_bytes=1000 is too little, this launch needs"):
        gradient(tape_bytes=1000)
    with pytest.raises(kg.LaunchError, match="counted: tape_bytes=10 is too little: one element each takes"):
        gradient(tape_bytes=10)
    monkeypatch.setattr(tape_memory, "is_captured", lambda *_: True)
    with pytest.raises(kg.LaunchError, match="while a CUDA graph is captured; give operators tape_bytes="):
        gradient(fill={"y": 1})
    close(gradient(tape_bytes="64kB"), expected)
    with pytest.raises(kg.KernelError, match="trap"):
        gradient(tape_bytes=1000)


def test_hooks_of_saved_tensors() -> None:
    """What a hook gives back is what the backward reads."""
    x, w = random(5), random(5, seed=1)
    for _ in range(4):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t * 2):
            y = WEIGHTED(x, w, 2.0)
        close(torch.autograd.grad(y.sum(), x)[0], 4 * (2 * x) * (2 * w).sin())


def test_only_what_the_backward_reads_is_saved() -> None:
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        x = torch.ones(7, requires_grad=True)
        y = elementwise("triple", {"y": "x"})(x)
        assert saved == []
        WEIGHTED(random(7), random(7, grad=False), 1.0)
        assert len(saved) == 2
        saved.clear()
        WEIGHTED(random(7, grad=False), random(7, grad=False), 1.0)
        assert saved == []
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0] * 7


def test_no_code_runs_for_inputs_that_need_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgrad.derivatives.gradient import Gradient

    given: list[tuple[bool, ...]] = []
    launch = Gradient._launch_plainly

    def watch(self: Any, at: Any, args: Any) -> None:
        given.append(tuple(a is not None for a in args[-4:]))
        launch(self, at, args)

    monkeypatch.setattr(Gradient, "_launch_plainly", watch)
    WEIGHTED(random(37), random(37, grad=False), 1.0).sum().backward()
    assert given == [(True, True, False, False)]  # adjoints of y, x, w, a


def test_a_saved_tensor_that_changes_is_found() -> None:
    x = random(3)
    y = WEIGHTED(x, x, 1.0)
    with torch.no_grad():
        x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- names and errors ------------------------------------------------------------------------------------------------


def test_making_an_operator_again_gives_the_same_one() -> None:
    again = kg.compile(MODULE._unit.text)["weighted"]
    op = kg.torch.op(again, {"y": "x"}, grid=lambda n, **_: n, block=1)
    assert op.name == WEIGHTED.name and op._operator is WEIGHTED._operator
    other = elementwise("weighted", {"y": "x"}, deterministic=True)
    assert other.name != WEIGHTED.name
    x = random(3)
    close(op(x, x, 2.0, 3), WEIGHTED(x, x, 2.0))


def test_repr() -> None:
    assert repr(WEIGHTED).startswith("<op (x, w, a) -> y\n  of __global__ void weighted(double *y,")
    assert "x: updated" in repr(elementwise("grow"))


def test_sizes_are_inferred() -> None:
    op = kg.torch.op(MODULE["weighted"], {"y": "x"})
    assert repr(op).endswith("n = x.numel(), inferred\n  grid ((n + block - 1) // block), inferred, block 256>")
    x, w = random(3, 100), random(3, 100, seed=1)
    close(op(x, w, 2.0), weighted(x, w, 2.0))
    assert not op(x, w, 2.0, n=7).flatten()[7:].any() and not op(x, w, 2.0, 7).flatten()[7:].any()
    with pytest.raises(kg.ArgumentError, match="'x' has 300 elements, 'w' has 5, and n is the size of both"):
        op(x, random(5), 2.0)
    with pytest.raises(kg.ArgumentError, match="product: how many blocks there are does not follow"):
        kg.torch.op(MODULE["product"], {"z": "x"})


def test_import_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import kernelgrad.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=_environment())
    assert "ImportError: kernelgrad.torch needs PyTorch: pip install torch" in done.stderr


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}


def test_kernels_that_may_do_something_else_have_no_backward() -> None:
    op = kg.torch.op(MODULE["slots"], {"y": "x", "count": (1,)}, grid=blocks, block=32, sizes={"n": numel})
    x = random(5)
    with pytest.raises(kg.UnsupportedError, match="slots has no backward as an operator: it uses what an atomic"):
        op(x)
    assert int(op(x.detach())[1]) == int((x > 0).sum())
    with pytest.raises(kg.UnsupportedError, match="slots has no forward mode as an operator: it uses what an atomic"):
        torch.func.jvp(lambda x: op(x)[0], (x.detach(),), (x.detach(),))


def test_so_it_is_where_they_print_before() -> None:
    kernel = kg.compile("""__global__ void told(double *y, int *count, const double *x, int n) {
        int i = threadIdx.x;
        if (i < n) { if (x[i] > 9) printf("large\\n"); y[atomicAdd(count, 1)] = x[i]; }
    }""")["told"]
    op = kg.torch.op(kernel, {"y": "x", "count": (1,)}, grid=1, block=32)
    with pytest.raises(kg.UnsupportedError, match="told has no backward as an operator: it uses what an atomic"):
        op(random(5), 5)


def test_constants_may_not_change_between_launches() -> None:
    MODULE.constant("SCALE")[...] = [3.0]
    op, x = elementwise("scaled", {"y": "x"}), random(3)
    y = op(x)
    y.sum().backward(retain_graph=True)
    assert x.grad is not None and x.grad.tolist() == [3.0] * 3
    MODULE.constant("SCALE")[...] = [4.0]
    with pytest.raises(kg.UnsupportedError, match="the variable 'SCALE' changed"):
        y.sum().backward()
