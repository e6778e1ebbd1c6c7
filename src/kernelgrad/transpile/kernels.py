"""Gradients of kernels that host code asks for: their kernels, and host functions that launch them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..derivatives.asked.settings import make_settings
from ..derivatives.gradient import Gradient
from ..errors import UnsupportedError
from ..frontend.in_source import Request
from ..frontend.unit import Unit
from ..kernel import Kernel
from .derivative_file import INCLUDE, form, kernel_texts
from .host_function import HostFunction
from .support import INCLUDES, support_for

if TYPE_CHECKING:
    from ..module import Module

_CONSTANTS = re.compile(r"#ifndef KERNELGRAD_CONSTANT_\w+\n.*?#endif\n\n?", re.S)


class KernelGradients:
    """All of one program, each in its general form."""

    def __init__(self, module: Module, unit: Unit):
        self.module, self.unit = module, unit
        self._made: dict[tuple[str, tuple[str, ...]], HostFunction] = {}

    def of(self, request: Request) -> HostFunction:
        """The host function for a request."""
        name = self.unit.qualified_name(request.function)
        listed = tuple(a.parameter.spelling for a in request.shadows)
        if (name, listed) not in self._made:
            self._made[name, listed] = self._host_function(name, listed, request)
        return self._made[name, listed]

    def _host_function(self, name: str, listed: tuple[str, ...], request: Request) -> HostFunction:
        span, kernel = self.unit.span(request.call), self.module[name]
        assert isinstance(kernel, Kernel)
        if kernel.refusal is not None:
            raise kernel.refusal
        if any(other == name for other, _ in self._made):
            problem = f"two gradients of '{name}' with respect to other parameters cannot be transpiled yet"
            raise UnsupportedError(problem, span)
        settings = make_settings(kernel.function, listed, "joint", None, None, False, None)
        function = HostFunction(form(Gradient(kernel, settings), None), None)
        for buffer in function.sizes:
            problem = f"the gradient of '{name}' needs memory as large as '{buffer}', whose size is not known here"
            raise UnsupportedError(problem, span, f"list '{buffer}', or use `kernelgrad diff --host-wrapper`")
        return function

    def texts(self) -> list[str]:
        """Of everything that was made: what it shares, the kernels, the host functions."""
        functions = list(self._made.values())
        if not functions:
            return []
        kernels = dict.fromkeys(text for function in functions for text in kernel_texts(function))
        includes = {f"#include <{name}>\n" for name in INCLUDES} | {
            i for text in kernels for i in INCLUDE.findall(text)
        }
        plain = [_CONSTANTS.sub("", INCLUDE.sub("", text)).lstrip("\n") for text in kernels]
        plain = [text.replace('extern "C" __global__', "static __global__") for text in plain]
        hosts = [function.text.replace("\ncudaError_t ", "\nstatic cudaError_t ", 1) for function in functions]
        return ["".join(sorted(includes)), *filter(None, [support_for(hosts)]), *plain, *hosts]
