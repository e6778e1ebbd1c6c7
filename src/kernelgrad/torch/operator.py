"""`kg.torch.op`: a kernel as a function of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import torch

from .. import requests
from ..api import of_cupy
from ..derivatives.asked.promises import Promises
from ..errors import ArgumentError
from ..frameworks.asked import Asked, Extent, Inferred, Shape, check, infer, three, value_of
from ..frameworks.derived import Options
from ..frameworks.roles import roles_of
from ..host.program import Program as Recorded
from ..kernel import Kernel
from .launching import Fill
from .registration import Registered, register

if TYPE_CHECKING:
    from .recorded import ProgramOp


class Op(Asked):
    """A kernel as a function of tensors, `y = op(x, w)`; see `op`."""

    elements = "numel()"

    def __init__(
        self,
        registered: Registered,
        outputs: Mapping[str, Shape],
        grid: Extent,
        block: Extent,
        shared: Extent,
        sizes: Mapping[str, Any],
        extent: Inferred,
    ):
        super().__init__(registered.kernel, registered.roles, outputs, grid, block, shared, sizes, extent)
        self._operator = registered.operator

    @property
    def name(self) -> str:
        """Under which it is registered, "kernelgrad::saxpy_..."."""
        return str(self._operator.name())

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        names = self._all_names if len(args) + len(keywords) == len(self._all_names) else self._names
        if len(args) + len(keywords) != len(names):
            raise self._miscounted(args, keywords)
        named = dict(zip(names, args, strict=False))
        for key, value in keywords.items():
            if key in named or key not in names:
                raise self._miscounted(args, keywords)
            named[key] = value
        for key in self._roles.arrays:
            if not isinstance(named[key], torch.Tensor):
                raise self._refuse(key, "wants a tensor", named[key])
        if names is self._names and self._extent.inferred is not None:
            named[self._extent.inferred] = self._same_size({name: named[name].numel() for name in self._extent.arrays})
        for key, size in self._sizes.items():
            named[key] = size(**named) if callable(size) else size
        return self._operator(*self._arguments(named))

    def _arguments(self, named: dict[str, Any]) -> list[Any]:
        roles = self._roles
        packed: list[Any] = [named[name] for name in roles.arrays]
        for name in roles.numbers:
            number = named[name]
            if isinstance(number, torch.Tensor):
                if number.numel() != 1 or not number.is_floating_point():
                    raise self._refuse(name, "wants a number or a floating-point tensor of one element", number)
                packed += [number, 0.0]
            else:
                packed += [None, number]
        packed += [named[name] for name in roles.integers]
        packed += [self._shape(shape, named) for _, shape in self._outputs]
        block = three(self._block, named)
        grid = self._blocks(named, block) if self._grid is None else three(self._grid, named)
        packed.append([*grid, *block, value_of(self._shared, named)])
        return packed

    def _blocks(self, named: Mapping[str, Any], block: list[Any]) -> list[Any]:
        assert self._extent.size is not None
        return [(named[self._extent.size] + block[0] - 1) // block[0], 1, 1]

    def _shape(self, shape: Shape, named: Mapping[str, Any]) -> list[Any]:
        if isinstance(shape, str):
            return list(named[shape].shape)
        found = shape(**named) if callable(shape) else shape
        return list(found) if isinstance(found, tuple | list) else [found]

    def _refuse(self, name: str, wants: str, got: Any) -> ArgumentError:
        shown = f"a tensor of shape {tuple(got.shape)}" if isinstance(got, torch.Tensor) else type(got).__name__
        return self._refused(name, wants, shown)

    def __deepcopy__(self, memo: Any) -> Op:
        """Models are copied; this has nothing that changes."""
        return self


@overload
def op(kernel: Recorded) -> ProgramOp: ...
@overload
def op(
    kernel: Kernel,
    outputs: Mapping[str, Shape] | None = None,
    *,
    grid: Extent = None,
    block: Extent = 256,
    shared: Extent = 0,
    sizes: Mapping[str, Any] | None = None,
    fill: Mapping[str, Fill] | None = None,
    deterministic: bool | None = None,
    tape_budget: int | str | None = None,
    assume: Promises | None = None,
    report_nan: bool = False,
) -> Op: ...


def op(
    kernel: Kernel | Recorded,
    outputs: Mapping[str, Shape] | None = None,
    *,
    grid: Extent = None,
    block: Extent = 256,
    shared: Extent = 0,
    sizes: Mapping[str, Any] | None = None,
    fill: Mapping[str, Fill] | None = None,
    deterministic: bool | None = None,
    tape_budget: int | str | None = None,
    assume: Promises | None = None,
    report_nan: bool = False,
) -> Op | ProgramOp:
    """A kernel as a function of tensors, with derivatives, for every transformation of PyTorch's.

    It takes the kernel's parameters in their order, but for `outputs`, and returns those and then what the kernel
    updates in place, as new tensors. `outputs={"y": "x"}`: y has the shape of x; or a tuple, or a function of the
    arguments, by name (`lambda x, **_: x.shape[:1]`). `grid`, `block`, `shared` likewise are numbers or functions, and
    so are `sizes`, integers that the operator then does not take: `{"n": lambda x, **_: x.numel()}`. Functions are
    called with symbolic sizes under `torch.compile`. Where the kernel's text says so, as `if (i < n) y[i] = x[i]` does,
    the grid and the size n may be left out; the repr shows what was inferred.

    A floating-point number may be a tensor of one element, and has a gradient then. `fill`: what an output holds before
    the kernel runs, zero by default; None for nothing in particular, where every element is written.
    `deterministic=None`: as `torch.use_deterministic_algorithms` says. `tape_budget`, `assume`, `report_nan`: see
    `kg.gradient`.

    Of a recorded program, `tape.program(...)`: a function of its inputs that gives its outputs, with first derivatives
    in reverse mode; it takes no settings."""
    if isinstance(kernel, Recorded):
        from .recorded import program_op

        given = outputs, grid, shared, sizes, fill, deterministic is not None, tape_budget, assume, report_nan
        requests.no_options("kg.torch.op", kernel, *(part or None for part in given))
        return program_op(kernel)
    kernel = _kernel(kernel)
    outputs, sizes = dict(outputs or {}), dict(sizes or {})
    roles = roles_of(kernel, outputs)
    check(kernel, roles, outputs, sizes)
    fills = {name: (fill or {}).get(name, 0) for name in outputs}
    requests.flags(report_nan=report_nan)
    options = Options(deterministic, requests.memory_size("tape_budget", tape_budget), assume, report_nan)
    extent = infer(kernel, roles, sizes)
    if grid is None and extent.size is None:
        raise ArgumentError(f"{kernel.name}: how many blocks there are does not follow from its text: give grid=...")
    return Op(register(kernel, roles, options, fills), outputs, grid, block, shared, sizes, extent)


def _kernel(given: Any) -> Kernel:
    found: Kernel = requests.target("kg.torch.op", of_cupy(given), Kernel)
    return found
