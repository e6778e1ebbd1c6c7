"""`kg.jax.op`: a kernel as a function of arrays."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from .. import requests
from ..api import of_cupy
from ..derivatives.asked.promises import Promises
from ..errors import ArgumentError
from ..frameworks.asked import Asked, Extent, Inferred, Shape
from ..frameworks.derived import Derived, Options
from ..frameworks.roles import Roles
from ..frameworks.settings import Fill, options_of, settle
from ..host.program import Program as Recorded
from ..kernel import Kernel
from ..locks import COMPILING
from ..runtime.config import make_launch
from ..runtime.recording import refuse_while_recording
from . import formulas  # noqa: F401 registers the derivatives of the primitives
from .calls import Call, Family, Slot
from .primitives import alike, bind

if TYPE_CHECKING:
    from .recorded import ProgramOp

_HUGE = 2**1024  # and more is no floating-point number


class Op(Asked):
    """A kernel as a function of arrays, `y = op(x, w)`; see `op`."""

    elements = "size"

    def __init__(
        self,
        family: Family,
        outputs: Mapping[str, Shape],
        grid: Extent,
        block: Extent,
        shared: Extent,
        sizes: Mapping[str, Any],
        extent: Inferred,
    ):
        super().__init__(family.kernel, family.roles, outputs, grid, block, shared, sizes, extent)
        self._family = family

    @property
    def name(self) -> str:
        """What the names under which it is registered with XLA begin with."""
        return self._family.name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        refuse_while_recording("an operator of JAX, whose results JAX keeps the derivatives of,")
        named = self._by_name(args, keywords)
        for name in self._roles.arrays:
            named[name] = self._array(name, named[name])
        if self._extent.inferred is not None and self._extent.inferred not in named:
            named[self._extent.inferred] = self._same_size(
                {name: int(named[name].size) for name in self._extent.arrays}
            )
            made = {name: self._shape(name, shape, named) for name, shape in self._outputs if name in self._extent.some}
            self._check_sizes(self._extent.some, made, named)
        for key, size in self._sizes.items():
            named[key] = self._value(f'sizes["{key}"]', size, named)
        call, arrays = self._call(named)
        found = bind("value", call, alike(arrays))
        return found[0] if len(found) == 1 else tuple(found)

    def _call(self, named: Mapping[str, Any]) -> tuple[Call, list[Any]]:
        roles = self._roles
        numbers = {name: self._number(name, named[name]) for name in roles.numbers}
        static = tuple((name, value.hex()) for name, value in numbers.items() if isinstance(value, float))
        given = {name: named[name] for name in roles.arrays}
        given |= {name: value for name, value in numbers.items() if not isinstance(value, float)}
        shapes = {name: tuple(named[name].shape) for name in roles.arrays}
        shapes |= {name: self._shape(name, shape, named) for name, shape in self._outputs}
        integers = tuple((name, self._integer(name, named[name])) for name in roles.integers)
        slots = tuple(Slot("primal", name) for name in given)
        call = Call(self._family, self._launch(named), integers, static, tuple(shapes.items()), slots)
        if all(value < 1 << 31 for _, value in integers):  # the others do not fit, which is told later
            self._check_sizes(self._extent.every, shapes, dict(integers))
        return call, list(given.values())

    def _launch(self, named: Mapping[str, Any]) -> tuple[int, ...]:
        block = self._three("block", self._block, named)
        grid = self._blocks(named, block) if self._grid is None else self._three("grid", self._grid, named)
        shared = self._value("shared=", self._shared, named)
        for what, parts in (("grid", grid), ("block", block), ("shared", [shared])):
            if any(isinstance(part, jax.core.Tracer) for part in parts):
                raise self._untraceable(f"{what}=", "let it depend on shapes and static arguments of jax.jit alone")
        if 0 in grid:  # of the extent of an empty array
            return (0, 0, 0, *block, shared)
        launch = make_launch(tuple(grid), tuple(block), shared, of=self.kernel.name)
        return (*launch.grid, *launch.block, launch.shared_bytes)

    def _blocks(self, named: Mapping[str, Any], block: list[Any]) -> list[Any]:
        assert self._extent.size is not None
        threads = block[0] or 1  # none is refused where launches are checked
        return [(self._integer(self._extent.size, named[self._extent.size]) + threads - 1) // threads, 1, 1]

    def _shape(self, name: str, shape: Shape, named: Mapping[str, Any]) -> tuple[int, ...]:
        self._check_dtype(name)
        return tuple(map(operator.index, self._made_shape(name, shape, named)))

    # ---- arguments

    def _array(self, name: str, value: Any) -> Any:
        self._check_dtype(name)
        if not isinstance(value, jax.Array | np.ndarray):
            raise self._refuse(name, "wants an array", value)
        array, dtype = jnp.asarray(value), self._family.dtype(name)
        if array.dtype != jnp.dtype(dtype):
            raise self._refuse(name, f"wants an array of {dtype}", array)
        return array

    def _check_dtype(self, name: str) -> None:
        """JAX has numbers of 64 bits where it is told to."""
        dtype = jnp.dtype(self._family.dtype(name))
        if dtype.itemsize == 8 and not jax.config.jax_enable_x64:
            place = f"{self.kernel.name}: parameter '{name}' ({self._roles[name].c_type})"
            raise ArgumentError(
                f"{place} holds {dtype}, which JAX has with jax.config.update('jax_enable_x64', True) alone"
            )

    def _number(self, name: str, value: Any) -> Any:
        """A float where it is part of the code, else an array of no dimensions."""
        is_huge = isinstance(value, int) and abs(value) >= _HUGE
        if isinstance(value, int | float) and not isinstance(value, bool | np.generic) and not is_huge:
            return float(value)
        if isinstance(value, jax.Array | np.ndarray | np.floating):
            array = jnp.asarray(value)
            is_integer = array.weak_type and jnp.issubdtype(array.dtype, jnp.integer)  # a Python number, traced
            if array.size == 1 and (is_integer or jnp.issubdtype(array.dtype, jnp.floating)):
                dtype = jax.dtypes.canonicalize_dtype(jnp.dtype(self._family.dtype(name)))
                return array.reshape(()).astype(dtype)
        raise self._refuse(name, "wants a number or a floating-point array of one element", value)

    def _integer(self, name: str, value: Any) -> int:
        if isinstance(value, jax.core.Tracer):
            parameter = f"parameter '{name}' ({self._roles[name].c_type})"
            raise self._untraceable(parameter, "make it a static argument of jax.jit, or give sizes={...}")
        try:
            if self._roles[name].dtype == "bool":
                return bool(
                    value.item() if getattr(value, "dtype", None) == np.dtype("bool") else operator.index(value)
                )
            return operator.index(value)
        except (TypeError, ValueError):  # the latter of an array of several
            raise self._refuse(name, "wants an integer", value) from None

    def _untraceable(self, what: str, hint: str) -> ArgumentError:
        problem = "has to be known when the operator is traced: launches depend on it"
        return ArgumentError(f"{self.kernel.name}: {what} {problem}\nhelp: {hint}")

    def _refuse(self, name: str, wants: str, got: Any) -> ArgumentError:
        is_array = isinstance(got, jax.Array | np.ndarray)
        shown = f"an array of {got.dtype} of shape {tuple(got.shape)}" if is_array else type(got).__name__
        return self._refused(name, wants, shown)


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
    deterministic: bool = False,
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
    deterministic: bool = False,
    tape_budget: int | str | None = None,
    assume: Promises | None = None,
    report_nan: bool = False,
) -> Op | ProgramOp:
    """A kernel as a function of arrays, with derivatives, for every transformation of JAX's.

    It takes the kernel's parameters in their order, but for `outputs`, and returns those and then what the kernel
    updates in place, as new arrays. `outputs={"y": "x"}`: y has the shape of x; or a tuple, or a function of the
    arguments, by name (`lambda x, **_: x.shape[:1]`). `grid`, `block`, `shared` likewise are numbers or functions, and
    so are `sizes`, integers that the operator then does not take: `{"n": lambda x, **_: x.size}`. Where the kernel's
    text says so, as `if (i < n) y[i] = x[i]` does, the grid and the size n may be left out; the repr shows what was
    inferred. Integers must be known when JAX traces.

    A floating-point number that is a Python number is part of the compiled code; as an array it is an input like
    others, and has a gradient. `fill`: what an output holds before the kernel runs, zero by default; None for nothing
    in particular, where every element is written. `deterministic`, `tape_budget`, `assume`, `report_nan`: see
    `kg.gradient`. `__constant__` variables are taken as they are now.

    Of a recorded program, `tape.program(...)`: a function of its inputs that gives its outputs, with first
    and second derivatives; it takes no settings."""
    if isinstance(kernel, Recorded):
        from .recorded import program_op

        given = outputs, grid, shared, sizes, fill, deterministic, tape_budget, assume, report_nan
        requests.no_options("kg.jax.op", kernel, *(part or None for part in given))
        return program_op(kernel)
    kernel = _kernel(kernel)
    settled = settle(kernel, outputs, grid, block, shared, sizes, fill)
    options = options_of(kernel, deterministic, tape_budget, None, assume, report_nan)
    family = _family(kernel, settled.roles, options, settled.fills)
    return Op(family, settled.outputs, grid, block, shared, settled.sizes, settled.extent)


def _kernel(given: Any) -> Kernel:
    found: Kernel = requests.target("kg.jax.op", of_cupy(given), Kernel)
    return found


_families: dict[str, Family] = {}


def _family(kernel: Kernel, roles: Roles, options: Options, fills: Mapping[str, Fill]) -> Family:
    """The same text, roles, settings and constants are one, so that nothing is compiled twice."""
    constants = [(name, kernel.variable(name).bytes()) for name in kernel._constant_names]
    asked = (kernel.ir, roles.outputs, sorted(fills.items()), options, constants)
    digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
    letters = "".join(c if c.isalnum() and c.isascii() else "_" for c in kernel.function.called)
    name = f"kernelgrad_{letters}_{digest}"
    with COMPILING:
        if name not in _families:
            fixed = kernel.with_fixed_constants()
            _families[name] = Family(name, fixed, roles, Derived(fixed, roles, options), fills)
        return _families[name]
