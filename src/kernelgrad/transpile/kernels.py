"""Gradients of kernels that host code asks for: their kernels, and host functions that launch them."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from ..autodiff.integers import are_integers, as_reals
from ..backends.cuda import kernel_name
from ..derivatives.asked.settings import make_settings
from ..derivatives.gradient import Gradient
from ..derivatives.module_variables import with_variables
from ..errors import ArgumentError, Span, UnsupportedError
from ..frontend import clang
from ..frontend.clang import Cursor, Kind
from ..frontend.in_source import Request
from ..frontend.unit import Unit
from ..frontend.visiting import children_of
from ..host.kernel_facts import KernelFacts
from ..kernel import Kernel
from ..programs.integer_gradient import kinds_of, listed_integers, real_kernel
from .derivative_file import INCLUDE, form, kernel_texts
from .host_function import HostFunction, Shape
from .integer_memory import integers_text
from .support import INCLUDES, support_for

if TYPE_CHECKING:
    from ..module import Module

_CONSTANTS = re.compile(r"#ifndef KERNELGRAD_CONSTANT_\w+\n.*?#endif\n\n?", re.S)


Key = tuple[str, tuple[str, ...]]  # a kernel, and the parameters to differentiate by


class KernelGradients:
    """All of one program: each in its general form, or in the one for the only grid and block that it is launched
    with, where these are constants."""

    def __init__(self, module: Module, unit: Unit):
        self.module, self.unit = module, unit
        self._shapes: dict[Key, set[Shape | None]] = {}
        self._made: dict[Key, HostFunction] = {}
        self._facts: dict[str, KernelFacts] = {}

    def note(self, request: Request) -> None:
        """A launch that will be asked for."""
        self._shapes.setdefault(self._key(request), set()).add(constant_shape(request))

    def _key(self, request: Request) -> Key:
        return self.unit.qualified_name(request.function), tuple(a.parameter.spelling for a in request.shadows)

    def of(self, request: Request) -> HostFunction:
        """The host function for a request."""
        key = self._key(request)
        if key not in self._made:
            others = sum(other == key[0] and listed[:1] != ("",) for other, listed in self._made)
            called = f"launch_{kernel_name(key[0])}_grad_{others + 1}" if others else ""
            self._made[key] = self._host_function(*key, request, called)
        return self._made[key]

    def recorded(self, name: str, span: Span, reals: frozenset[str], shares: bool) -> HostFunction:
        """That of a launch in a host function that is differentiated: by all that has a derivative, for any launch.
        `reals`: the parameters that lead to integers which are differentiated by. `shares`: arguments may be the same
        memory."""
        key = name, ("", *sorted(reals), *(["[shared]"] if shares else []))
        if key not in self._made:
            called = f"launch_{kernel_name(name)}_{'recorded_integers' if reals else 'recorded'}"
            called += "_on_shared" if shares else ""
            listed = (
                *self.facts(name).listed,
                *(p.name for p in self._kernel(name).function.params if p.name in reals),
            )
            self._made[key] = self._made_for(name, listed, None, span, called, shares)
        return self._made[key]

    def check_known(self, name: str, span: Span) -> None:
        if name not in self.module:
            library = name.partition("::")[0]
            problem = f"a kernel of {library}, in a host function that is differentiated, cannot be transpiled"
            hint = "launch a kernel of your own; kg.gradient(module[...]) and module['main']() run it from Python"
            raise UnsupportedError(problem, span, hint)

    def real_params(self, name: str) -> frozenset[str]:
        """The parameters whose integers can be differentiated by: they are added, subtracted and multiplied alone."""
        kernel, found = self._kernel(name), set[str]()
        pointers = frozenset(p.name for p in kernel.function.params if are_integers(p.type))
        for param in sorted(pointers):
            with contextlib.suppress(UnsupportedError):  # it is an index, say
                found |= as_reals(kernel.module, name, (param,)).names
        return frozenset(found) if found <= pointers else frozenset()

    def facts(self, name: str) -> KernelFacts:
        if name not in self._facts:
            self._facts[name] = KernelFacts(self._kernel(name))
        return self._facts[name]

    def _kernel(self, name: str) -> Kernel:
        kernel = self.module[name]
        assert isinstance(kernel, Kernel)
        if kernel.refusal is not None:
            raise kernel.refusal
        return kernel

    def _made_for(
        self,
        name: str,
        listed: tuple[str, ...] | None,
        shape: Shape | None,
        span: Span,
        called: str = "",
        may_alias: bool = False,
    ) -> HostFunction:
        kernel = self._kernel(name)
        integers = listed_integers(kernel.function, listed)
        kinds = kinds_of(kernel.function, integers)
        kernel = real_kernel(kernel, integers) if integers else kernel
        if kernel.module.globals:
            kernel = with_variables(kernel, listed)
        try:
            settings = make_settings(kernel.function, listed, "joint", None, None, may_alias, None)
        except ArgumentError as error:
            raise UnsupportedError(str(error), span) from error
        return HostFunction(form(Gradient(kernel, settings), shape), shape, name=called, integers=kinds)

    def _host_function(self, name: str, listed: tuple[str, ...], request: Request, called: str) -> HostFunction:
        span = self.unit.span(request.call)
        shapes = self._shapes.get((name, listed), {None})
        function = self._made_for(name, listed, next(iter(shapes)) if len(shapes) == 1 else None, span, called)
        for buffer in function.sizes:
            problem = f"the gradient of '{name}' needs memory as large as '{buffer}', whose size is not known here"
            raise UnsupportedError(problem, span, f"list '{buffer}', or use `kernelgrad diff --host-wrapper`")
        return function

    def texts(self) -> list[str]:
        """Of everything that was made: what it shares, the kernels, the host functions."""
        functions = list(self._made.values())
        if not functions:
            return []
        kernels, hosts = dict[str, str](), list[str]()
        for function in functions:
            texts = dict(zip((kernel_name(k.name) for k in function.kernels), kernel_texts(function), strict=True))
            others = _renamed(texts, kernels)
            kernels |= {others.get(name, name): _with_names(text, others) for name, text in texts.items()}
            hosts.append(_with_names(function.text.replace("\ncudaError_t ", "\nstatic cudaError_t ", 1), others))
        includes = {f"#include <{name}>\n" for name in INCLUDES} | {
            i for text in kernels.values() for i in INCLUDE.findall(text)
        }
        plain = [_CONSTANTS.sub("", INCLUDE.sub("", text)).lstrip("\n") for text in kernels.values()]
        plain = [text.replace('extern "C" __global__', "static __global__") for text in plain]
        integers = integers_text() if any("_integer" in text for text in plain) else ""
        return ["".join(sorted(includes)), *filter(None, [support_for(hosts), integers]), *plain, *hosts]


def _renamed(texts: dict[str, str], known: dict[str, str]) -> dict[str, str]:
    """Other names for kernels of which there is another one of that name."""
    found = {}
    for name, text in texts.items():
        number, other = 1, name
        while known.get(other, _with_names(text, {name: other})) != _with_names(text, {name: other}):
            number += 1
            other = f"{name}_{number}"
        if other != name:
            found[name] = other
    return found


def _with_names(text: str, names: dict[str, str]) -> str:
    """With other names of kernels."""
    for old, new in names.items():
        text = re.sub(rf"\b{re.escape(old)}(?=\(|<<<|, shared)", new, text)
    return text


def constant_shape(request: Request) -> Shape | None:
    """The grid and block of a launch, where both are constants."""
    grid, block = (_extents(c) for c in request.configuration[:2])
    return None if grid is None or block is None else Shape(grid, block)


def _extents(c: Cursor) -> tuple[int, int, int] | None:
    """`dim3(4, 2)`, `64`, or a `const dim3` that was set to one of these."""
    number = clang.evaluate(c)
    if isinstance(number, int) and number > 0:
        return number, 1, 1
    if c.kind == Kind.DECL_REF_EXPR:
        target = c.referenced
        start = clang.initializer(target) if target is not None and target.type.is_const_qualified() else None
        return None if start is None else _extents(start)
    inside = [k for k in children_of(c) if k.kind.is_expression()]
    if c.kind == Kind.CALL_EXPR and c.type.get_canonical().spelling.removeprefix("const ") == "dim3":
        given = list(c.get_arguments())
        if len(given) == 1 and given[0].type.get_canonical().spelling.removeprefix("const ") == "dim3":
            return _extents(given[0])  # a copy
        found = [clang.evaluate(a) for a in given if clang.statement_class(a) != clang.DEFAULT_ARG]
        if found and all(isinstance(n, int) and n > 0 for n in found):
            return (*found, *(1,) * (3 - len(found)))  # type: ignore[return-value]
        return None
    return _extents(inside[0]) if len(inside) == 1 else None
