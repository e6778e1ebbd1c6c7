"""`kg.torch.op`: a kernel as a function of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch

from .. import requests
from ..api import of_cupy
from ..derivatives.asked.promises import Promises
from ..errors import ArgumentError, InternalError
from ..frameworks.asked import Asked, Extent, Inferred, Shape
from ..frameworks.settings import Fill, options_of, settle
from ..host.program import Program as Recorded
from ..ir import serial
from ..kernel import Kernel
from .eager import Plan, is_plain
from .keys import key_function
from .launching import refuse_recording
from .registration import Registered, register

if TYPE_CHECKING:
    from .recorded import ProgramOp

_PLANS = 256
_UNKNOWN = object()
_NUMBERS = (float, int, torch.SymFloat, torch.SymInt)
_INTEGERS = (int, torch.SymInt, torch.SymBool)


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
        self._operator, self._registered = registered.operator, registered
        self._eager = registered.eager
        self._plans: dict[Any, Plan] = {}
        self._keys: dict[int, Any] = {}  # functions, None where there is none

    @property
    def name(self) -> str:
        """Under which it is registered, "kernelgrad::saxpy_..."."""
        return str(self._operator.name())

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling() or not is_plain():
            return self._operator(*self._arguments(self._named(args, keywords)))
        refuse_recording()
        if keywords:
            args, keywords = self._in_order(args, keywords)
        key = None if keywords else self._key(args)
        if key is not None:
            plan = self._plans.get(key[0])
            if plan is not None:
                return self._eager.run(plan, key[1], key[2])
        named = self._named(args, keywords)
        planned = self._eager.plan(named, self._shapes(named), self._launch_numbers(named))
        if planned is None:
            return self._operator(*self._arguments(named))
        if key is not None:
            self._remember(key[0], planned[0])
        return self._eager.run(*planned)

    def _in_order(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All by position, if that is what it takes; else as they are, which is told later."""
        count = len(args) + len(keywords)
        rest = (self._all_names if count == len(self._all_names) else self._names)[len(args) :]
        if len(rest) != len(keywords) or not all([name in keywords for name in rest]):  # noqa: C419 this is quicker
            return args, keywords
        return (*args, *[keywords[name] for name in rest]), {}

    def _key(self, args: tuple[Any, ...]) -> tuple[Any, Any, Any] | None:
        """What a call's plan depends on, and the tensors and numbers that it is run with, Note [Keys of calls]."""
        find = self._keys.get(len(args), _UNKNOWN)
        if find is _UNKNOWN:
            find = self._keys[len(args)] = key_function(self, len(args))
        return None if find is None else find(args)

    def _remember(self, key: Any, plan: Plan) -> None:
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        self._plans[key] = plan

    def _named(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        """All arguments of the kernel but outputs."""
        named = self._by_name(args, keywords)
        for key in self._roles.numbers:
            number = named[key]
            if not _is_number(number):
                raise self._refuse(key, "wants a number or a floating-point tensor of one element", number)
        for key in self._roles.arrays:
            if not isinstance(named[key], torch.Tensor):
                raise self._refuse(key, "wants a tensor", named[key])
            self._registered.launcher.check_layout(key, named[key])
        if self._extent.inferred is not None and self._extent.inferred not in named:
            named[self._extent.inferred] = self._same_size({name: named[name].numel() for name in self._extent.arrays})
            made = {
                name: self._made_shape(name, shape, named) for name, shape in self._outputs if name in self._extent.some
            }
            self._check_sizes(self._extent.some, made, named)
        for key, size in self._sizes.items():
            named[key] = self._value(f'sizes["{key}"]', size, named)
        for key in self._roles.integers:
            if not _is_integer(named[key]):
                raise self._refuse(key, "wants an integer", named[key])
            if isinstance(named[key], torch.Tensor | np.ndarray | np.generic):
                named[key] = named[key].item()
        return named

    def _arguments(self, named: dict[str, Any]) -> list[Any]:
        """Of the registered operator."""
        roles = self._roles
        packed: list[Any] = [named[name] for name in roles.arrays]
        for name in roles.numbers:
            number = named[name]
            if isinstance(number, torch.Tensor):
                packed += [number, 0.0]
            else:
                packed += [None, number]
        packed += [named[name] for name in roles.integers]
        return [*packed, *self._shapes(named), self._launch_numbers(named)]

    def _shapes(self, named: Mapping[str, Any]) -> list[list[Any]]:
        """Of the outputs."""
        made = {name: self._made_shape(name, shape, named) for name, shape in self._outputs}
        if self._extent.every:
            inputs = {name: named[name].shape for name in self._extent.every if name not in made}
            self._check_sizes(self._extent.every, {**made, **inputs}, named)
        return list(made.values())

    def _launch_numbers(self, named: Mapping[str, Any]) -> list[Any]:
        """Grid, block, bytes of shared memory."""
        block = self._three("block", self._block, named)
        grid = self._blocks(named, block) if self._grid is None else self._three("grid", self._grid, named)
        return [*grid, *block, self._value("shared=", self._shared, named)]

    def _blocks(self, named: Mapping[str, Any], block: list[Any]) -> list[Any]:
        assert self._extent.size is not None
        threads = block[0] or 1  # none is refused where launches are checked
        return [(named[self._extent.size] + threads - 1) // threads, 1, 1]

    def _refuse(self, name: str, wants: str, got: Any) -> ArgumentError:
        shown = (
            f"a tensor of {got.dtype} of shape {tuple(got.shape)}"
            if isinstance(got, torch.Tensor)
            else type(got).__name__
        )
        return self._refused(name, wants, shown)

    def __reduce__(self) -> tuple[Any, ...]:
        """Models are saved with their operators: the kernel as it was compiled, and what was said of it."""
        kernel, launcher = self.kernel, self._registered.launcher
        if not kernel.is_plain or kernel.refusal is not None:
            raise PicklingError(f"{kernel.name} has variables besides its arguments, which stay in this process")
        options = launcher.derived.options
        settings = {
            "grid": self._grid,
            "block": self._block,
            "shared": self._shared,
            "sizes": self._sizes,
            "fill": launcher.fills,
            "deterministic": options.deterministic,
            "tape_budget": options.tape_budget,
            "tape_bytes": options.tape_bytes,
            "assume": options.promises,
            "report_nan": options.report_nan,
        }
        return _unpickled, (kernel.name, serial.dump(kernel.module), dict(self._outputs), settings)

    def __deepcopy__(self, memo: Any) -> Op:
        """Models are copied; this has nothing that changes."""
        return self


def _unpickled(name: str, module: bytes, outputs: Mapping[str, Shape], settings: dict[str, Any]) -> Op:
    return op(Kernel(name, serial.load(module), _no_variable), outputs, **settings)


def _no_variable(name: str) -> Any:
    raise InternalError(f"a kernel without variables uses '{name}'")


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
    tape_bytes: int | str | None = None,
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
    tape_bytes: int | str | None = None,
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
    `kg.gradient`. `tape_bytes`: room for a tape whose length depends on what arrays hold, of the same length for every
    thread. Without it such a tape is counted before each backward, which cannot be while a CUDA graph is captured.

    Of a recorded program, `tape.program(...)`: a function of its inputs that gives its outputs, with first
    and second derivatives; it takes no settings."""
    if isinstance(kernel, Recorded):
        from .recorded import program_op

        given = (
            outputs,
            grid,
            shared,
            sizes,
            fill,
            deterministic is not None,
            tape_budget,
            tape_bytes,
            assume,
            report_nan,
        )
        requests.no_options("kg.torch.op", kernel, *(part or None for part in given))
        return program_op(kernel)
    kernel = _kernel(kernel)
    settled = settle(kernel, outputs, grid, block, shared, sizes, fill)
    options = options_of(kernel, deterministic, tape_budget, tape_bytes, assume, report_nan)
    registered = register(kernel, settled.roles, options, settled.fills)
    return Op(registered, settled.outputs, grid, block, shared, settled.sizes, settled.extent)


def _is_number(given: Any) -> bool:
    if isinstance(given, torch.Tensor):
        return bool(given.numel() == 1 and given.is_floating_point())
    return isinstance(given, _NUMBERS) or hasattr(given, "__float__")


def _is_integer(given: Any) -> bool:
    if isinstance(given, torch.Tensor):
        return bool(given.numel() == 1 and not given.is_floating_point() and not given.is_complex())
    return isinstance(given, (*_INTEGERS, np.bool_)) or hasattr(given, "__index__")


def _kernel(given: Any) -> Kernel:
    found: Kernel = requests.target("kg.torch.op", of_cupy(given), Kernel)
    return found
