"""Operators under `torch.compile`: one graph, also of transformations, with sizes that change."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg

torch = pytest.importorskip("torch")
from torch._dynamo.testing import CompileCounter  # noqa: E402
from torch.func import grad, hessian, jvp, vmap  # noqa: E402
from torch_kernels import MODULE, blocks, elementwise, numel, random, weighted  # noqa: E402

# PyTorch's own.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch._prims_common.check:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]
# How fast inductor's own code is says nothing here: it is not vectorised, for which a compiler is started again and
# again to see what it can do, nor are headers compiled ahead for two files.
QUICKLY = {
    "compile_threads": 1,
    "cpp_cache_precompile_headers": False,
    "cpp.vec_isa_ok": False,
    "aot_inductor.precompile_headers": False,
    "aot_inductor.compile_wrapper_opt_level": "O0",
}
WEIGHTED = elementwise("weighted", {"y": "x"})
W, A = random(5, grad=False, seed=1), random(1, grad=False)[0]


def compiled(f: Any, **settings: Any) -> Any:
    """What is before and after inductor is what operators have a part in."""
    return torch.compile(f, fullgraph=True, backend="aot_eager", **settings)


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.fixture
def inductor() -> Iterator[Any]:
    with torch._inductor.config.patch(QUICKLY):
        yield torch._inductor


@pytest.mark.usefixtures("inductor")
def test_value_and_gradients_with_inductor() -> None:
    f = lambda x, w, a: (WEIGHTED(x.cos(), w, a) * 2).sum()  # noqa: E731
    reference = lambda x, w, a: (weighted(x.cos(), w, a) * 2).sum()  # noqa: E731
    inputs = random(5), random(5, seed=1), random(1).sum().detach().requires_grad_()
    found = torch.compile(f, fullgraph=True)(*inputs)
    close(found, reference(*inputs))
    close(torch.autograd.grad(found, inputs), torch.autograd.grad(reference(*inputs), inputs))


def test_sizes_that_change() -> None:
    counted = CompileCounter()
    f = torch.compile(lambda x: WEIGHTED(x, x, 2.0), fullgraph=True, dynamic=True, backend=counted)
    for n in (5, 70, 129):
        x = random(n, grad=False)
        close(f(x), weighted(x, x, 2.0))
    assert counted.frame_count == 1


def test_gradients_of_sizes_that_change() -> None:
    f = compiled(lambda x, w: WEIGHTED(x, w, 2.0).sum(), dynamic=True)
    for n in (5, 70):
        x, w = random(n), random(n, seed=1)
        close(torch.autograd.grad(f(x, w), (x, w)), torch.autograd.grad(weighted(x, w, 2.0).sum(), (x, w)))


@pytest.mark.parametrize(
    "transformed",
    [
        grad,
        lambda f: lambda x: jvp(f, (x,), (torch.ones_like(x),))[1],
        lambda f: lambda x: vmap(grad(f))(torch.stack([x, 2 * x])),
        hessian,
    ],
    ids=["grad", "jvp", "vmap of grad", "hessian"],
)
def test_transformations(transformed: Any) -> None:
    found = compiled(transformed(lambda x: WEIGHTED(x, W, A).sum()))(random(5, grad=False))
    close(found, transformed(lambda x: weighted(x, W, A).sum())(random(5, grad=False)))


def test_in_place_kernels_and_several_outputs() -> None:
    grow = elementwise("grow")
    both = kg.torch.op(
        MODULE["both"], {"product": "x", "sum": (), "sign": "x"}, grid=blocks, block=32, sizes={"n": numel}
    )
    x = random(5)
    found = compiled(lambda x: both(grow(x), x)[0].sum() + both(x, x)[1])(x)
    expected = (x.exp() * x * x).sum() + (x * x).sum()
    close(found, expected)
    close(torch.autograd.grad(found, x), torch.autograd.grad(expected, x))


def test_integers_that_are_tensors() -> None:
    op = kg.torch.op(MODULE["iterate"])
    x = random(5)
    expected = torch.autograd.grad(op(x, steps=3).sum(), x)[0]
    for steps in (torch.tensor(3), torch.tensor([3]), np.int64(3)):
        found = compiled(lambda x, steps: op(x, steps=steps).sum())(x, steps)
        close(torch.autograd.grad(found, x)[0], expected)
        close(torch.autograd.grad(op(x, steps=steps).sum(), x)[0], expected)
    with pytest.raises(RuntimeError, match=r"vmap: It looks like you're calling .item\(\)"):
        vmap(lambda x, steps: op(x, steps=steps))(random(2, 5), torch.tensor([1, 2]))


def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return WEIGHTED(x, x, 2.0) + 1

    x = random(5, grad=False)
    program = torch.export.export(Model(), (x,))
    close(program.module()(x), weighted(x, x, 2.0) + 1)
    assert WEIGHTED.name.replace("::", ".") in str(program.graph)


def test_exported_programs_with_any_size_are_saved_and_loaded() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return WEIGHTED(x, x, 2.0) + 1

    shapes = ({0: torch.export.Dim("n", min=2)},)
    program = torch.export.export(Model(), (random(5, grad=False),), dynamic_shapes=shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = random(70, grad=False)
    close(torch.export.load(file).module()(x), weighted(x, x, 2.0) + 1)


def test_programs_that_are_compiled_ahead_of_time(inductor: Any, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("PyTorch needs a C++ compiler for this")

    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return WEIGHTED(x, 2 * x, 2.0)

    shapes = ({0: torch.export.Dim("n", min=2)},)
    program = torch.export.export(Model(), (random(5, grad=False),), dynamic_shapes=shapes)
    file = inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    loaded, x = inductor.aoti_load_package(file), random(70, grad=False)
    close(loaded(x), weighted(x, 2 * x, 2.0))


def test_a_wrong_dtype_is_said_when_the_graph_is_made() -> None:
    with pytest.raises(Exception, match="parameter 'x'.*wants a tensor of torch.float64, got one of torch.float32"):
        compiled(lambda x: WEIGHTED(x, x, 2.0))(torch.ones(3))
