"""What a user says of an operator, and what follows from the kernel's text: grids, sizes, shapes of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, NamedTuple

from .. import requests
from ..errors import ArgumentError
from ..kernel import Kernel
from ..runtime.notebook import kernel_html
from ..runtime.signature import c_signature
from .roles import Roles
from .sizes import extent_of

Extent = Any  # an integer, a tuple of up to three, or a function of the arguments that gives one
_REST = "; it takes the rest of them as **_, as in lambda x, **_: x.shape[0]"
Shape = Any  # the name of an array whose shape it has, a tuple, or a function of the arguments that gives one


class Inferred(NamedTuple):
    """`size`: the parameter from which on threads do nothing; `inferred`: the same, where `arrays` tell it.
    `every`: inputs and outputs of which each thread before it accesses an element. `some`: outputs of which some do;
    they are taken to be as large, unless the size is given."""

    size: str | None = None
    inferred: str | None = None
    arrays: tuple[str, ...] = ()
    every: tuple[str, ...] = ()
    some: tuple[str, ...] = ()


def infer(kernel: Kernel, roles: Roles, sizes: Mapping[str, Any]) -> Inferred:
    extent = extent_of(kernel.function)
    if extent is None:
        return Inferred()
    arrays = tuple(name for name in extent.arrays if name in roles.arrays)
    some = tuple(name for name in extent.arrays if name in roles.outputs and name not in extent.every)
    inferred = extent.size if arrays and extent.size not in sizes else None
    return Inferred(extent.size, inferred, arrays, extent.every, some)


class Asked:
    """What operators of all packages share: the names of what they take, and how they are told. `elements`: how the
    package spells the number of an array's elements."""

    elements: ClassVar[str]

    def __init__(
        self,
        kernel: Kernel,
        roles: Roles,
        outputs: Mapping[str, Shape],
        grid: Extent,
        block: Extent,
        shared: Extent,
        sizes: Mapping[str, Any],
        extent: Inferred,
    ):
        self.kernel, self._roles = kernel, roles
        self._outputs, self._grid, self._block, self._shared = tuple(outputs.items()), grid, block, shared
        self._sizes, self._extent = dict(sizes), extent
        asked = [p.name for p in roles.parameters if p.name not in roles.outputs and p.name not in sizes]
        self._all_names = tuple(asked)
        self._names = tuple(name for name in asked if name != extent.inferred)

    def _by_name(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with a size that could be inferred if it is given. Where that is by name, the others stand as
        if there was none."""
        every = len(args) + len(keywords) == len(self._all_names)
        names = self._all_names if every else self._names
        named = dict(zip(self._names if self._extent.inferred in keywords else names, args, strict=False))
        is_wrong = any([name in named or name not in names for name in keywords])  # noqa: C419 PyTorch traces this
        if len(args) + len(keywords) != len(names) or len(named) != len(args) or is_wrong:
            raise self._miscounted(args, keywords)
        return {**named, **keywords}

    def _same_size(self, counts: Mapping[str, Any]) -> Any:
        """Of the arrays that have one element per thread, by their names."""
        first, *others = self._extent.arrays
        for name in others:
            if counts[name] != counts[first]:
                shapes = f"'{first}' has {counts[first]} elements, '{name}' has {counts[name]}"
                size = self._extent.inferred
                known = all(n in self._extent.every for n in (first, name))
                remedy = "" if known else f"; pass {size}= if it is not"
                raise ArgumentError(f"{self.kernel.name}: {shapes}, and {size} is the size of both{remedy}")
        return counts[first]

    def _check_sizes(self, names: tuple[str, ...], shapes: Mapping[str, Any], named: Mapping[str, Any]) -> None:
        """Threads before the size access an element each of them."""
        for name in names:
            size, count = named[self._extent.size or ""], prod(shapes[name])
            if count < size:
                problem = f"'{name}' has {count} elements, and {self._extent.size} is {size}"
                does = "writes" if self._roles[name].written else "reads"
                remedy = "" if name in self._extent.every else f"; pass {self._extent.size}= if not"
                raise ArgumentError(f"{self.kernel.name}: {problem}: every thread before that {does} one{remedy}")

    def _value(self, what: str, given: Any, named: Mapping[str, Any]) -> Any:
        """A number, or what a function of the user's says."""
        if not callable(given):
            return given
        try:
            return given(**named)
        except Exception as error:
            place = f"{self.kernel.name}: the function {what} raised {type(error).__name__}: {error}"
            raise ArgumentError(f"{place}\nhelp: it is called with {', '.join(named)} by name{_REST}") from error

    def _three(self, what: str, given: Extent, named: Mapping[str, Any]) -> list[Any]:
        found = self._value(f"{what}=", given, named)
        parts = list(found) if isinstance(found, tuple | list) else [found]
        if not 1 <= len(parts) <= 3:
            raise requests.wrong(f"{self.kernel.name}: {what}", "an integer or a tuple of 1 to 3 of them", found)
        return parts + [1] * (3 - len(parts))

    def _made_shape(self, name: str, shape: Shape, named: Mapping[str, Any]) -> list[Any]:
        """Of an output."""
        if isinstance(shape, str):
            return list(named[shape].shape)
        found = self._value(f'outputs["{name}"]', shape, named)
        return extents(f"{self.kernel.name}: the shape of '{name}'", found)

    def _refused(self, name: str, wants: str, shown: str) -> ArgumentError:
        return ArgumentError(
            f"{self.kernel.name}: parameter '{name}' ({self._roles[name].c_type}) {wants}, got {shown}"
        )

    def _miscounted(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> ArgumentError:
        got = f"{len(args)} by position" + (f" and {', '.join(keywords)} by name" if keywords else "")
        return ArgumentError(f"wants {', '.join(self._names)}, got {got}\n  {self!r}")

    def __repr__(self) -> str:
        taken = ", ".join(self._names)
        lines = [f"<op ({taken}) -> {', '.join(self._roles.results)}", f"  of {c_signature(self.kernel.function)}"]
        lines += [f"  {name}: updated, the new contents are returned" for name in self._roles.updated]
        lines += [f"  {name}: {told_shape(shape)}" for name, shape in self._outputs]
        lines += [f"  {name} = {told(size)}" for name, size in self._sizes.items()]
        if self._extent.inferred is not None:
            lines.append(f"  {self._extent.inferred} = {self._extent.arrays[0]}.{self.elements}, inferred")
        blocks = f"(({self._extent.size} + block - 1) // block), inferred" if self._grid is None else told(self._grid)
        return "\n".join(lines) + f"\n  grid {blocks}, block {told(self._block)}>"

    def _repr_html_(self) -> str:
        return kernel_html(repr(self), self._roles.parameters)


def extents(what: str, given: Any) -> list[Any]:
    """Of an array's shape: an integer or several, which may be symbols."""
    parts = list(given) if isinstance(given, tuple | list) else [given]
    if not all([_is_extent(part) for part in parts]):  # noqa: C419 PyTorch traces this
        raise requests.wrong(what, "an integer from 0 on or a tuple of them", given)
    return parts


def _is_extent(part: Any) -> bool:
    if isinstance(part, bool | float | str):
        return False
    return part >= 0 if isinstance(part, int) else is_integer(part)


def is_integer(given: Any) -> bool:
    """One of Python's or a symbol, or of a package whose arrays look like integers too."""
    return (
        hasattr(given, "__index__") and not getattr(given, "ndim", 0) and "int" in str(getattr(given, "dtype", "int"))
    )


def told(given: Any) -> str:
    return "by a function of the arguments" if callable(given) else repr(given)


def told_shape(shape: Shape) -> str:
    return f"like {shape}" if isinstance(shape, str) else f"of shape {told(shape)}"
