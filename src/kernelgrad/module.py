"""The text that a user hands over: its functions by name, each compiled when it is asked for."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import LookupFailed
from .locks import COMPILING

if TYPE_CHECKING:
    from .derivatives.device_function import DeviceFunction
    from .frontend.custom_text import CustomGradient
    from .frontend.unit import Unit
    from .kernel import Kernel
    from .programs.function import HostFunction, State
    from .runtime.variables import Variable

Found = TypeVar("Found")


class Module:
    """A parsed text. `module["kernel"]` compiles that kernel; errors in what it does not reach do not matter."""

    def __init__(
        self,
        text: str,
        name: str,
        include_dirs: tuple[str, ...],
        defines: tuple[str, ...],
        std: str,
        custom: tuple[CustomGradient, ...] = (),
    ):
        self.name = name
        with COMPILING:
            from .frontend.unit import Options, Unit

            text += "".join(given.text for given in custom)
            self._unit: Unit = Unit(name, text, Options(include_dirs, defines, std))
            self._unit.require_functions()
            for given in custom:
                self._unit.require(given.name)
        weakref.finalize(self, self._unit.close).atexit = False
        self._kernels: dict[str, Any] = {}
        self._variables: dict[Any, Variable] = {}
        self._state: State | None = None

    @property
    def functions(self) -> list[str]:
        """The C signatures of the functions and templates in the text."""
        with COMPILING:
            return self._unit.signatures()

    def __getitem__(self, name: str) -> Any:
        """The kernel or function 'f', 'ns::f', 'f<float, 4>' (an instance) or 'f(float, int)' (an overload)."""
        if not isinstance(name, str):
            raise LookupFailed(f"a function is looked up by its name, got {name!r}")
        found = self._kernels.get(name)
        if found is None:
            with COMPILING:
                found = self._kernels.get(name) or self._compile(name)
                self._kernels[name] = found
        return found

    def kernel(self, name: str) -> Kernel:
        """`module[name]`, a kernel, as type checkers want it."""
        from .kernel import Kernel

        return self._of_class(name, Kernel, "kernel")

    def device_function(self, name: str) -> DeviceFunction:
        """`module[name]`, a function without launches, as type checkers want it."""
        from .derivatives.device_function import DeviceFunction

        return self._of_class(name, DeviceFunction, "device function")

    def host_function(self, name: str) -> HostFunction:
        """`module[name]`, a function that launches or allocates, as type checkers want it."""
        from .programs.function import HostFunction

        return self._of_class(name, HostFunction, "host function")

    def _of_class(self, name: str, wanted: type[Found], kind: str) -> Found:
        found = self[name]
        if not isinstance(found, wanted):
            raise LookupFailed(f"{name} is not a {kind}, but {found!r}")
        return found

    def __contains__(self, name: object) -> bool:
        try:
            with COMPILING:
                return isinstance(name, str) and self._unit.find(name) is not None
        except LookupFailed:
            return False

    def __iter__(self) -> Any:
        raise TypeError("a module is not iterable; module.functions lists its functions")

    def __repr__(self) -> str:
        listed = "".join(f"\n  {signature}" for signature in self.functions)
        return f"<kernelgrad module {self.name}{listed}>"

    def _repr_html_(self) -> str:
        from .runtime.notebook import module_html

        return module_html(self.name, self.functions)

    def constant(self, name: str) -> Variable:
        """A `__constant__` or `__device__` variable: `module.constant("W")[...] = values`."""
        from .pipeline import declared_variable

        with COMPILING:
            declaration = declared_variable(self._unit, name)
        return _variable(declaration, self._variables)

    variable = constant

    def _compile(self, name: str) -> Kernel | DeviceFunction | HostFunction:
        from . import pipeline
        from .kernel import Kernel

        lowered, ir_name, refusal = pipeline.lower_for_derivatives(self._unit, name)
        if pipeline.is_program(lowered, ir_name):
            return self._host_function(lowered, ir_name, refusal)
        module = pipeline.compile_kernel(lowered, ir_name)
        function, variables = module.functions[ir_name], self._variables

        def variable(name: str) -> Variable:
            return _variable(module.globals[name], variables)

        if function.kind == "kernel":
            return Kernel(ir_name, module, variable, refusal=refusal)
        from .derivatives.device_function import DeviceFunction, as_kernel

        wrapped = replace(module, functions={ir_name: as_kernel(function)})
        return DeviceFunction(function, Kernel(ir_name, wrapped, variable, refusal=refusal))

    def _host_function(self, lowered: Any, name: str, refusal: Any) -> HostFunction:
        from .programs.function import HostFunction, HostProgram, State

        variables = self._variables

        def variable(declaration: Any) -> Variable:
            return _variable(declaration, variables)

        if self._state is None:
            self._state = State(variable)
        return HostFunction(HostProgram(name, lowered, variable, refusal), self._state)


def _variable(declaration: Any, known: dict[Any, Variable]) -> Variable:
    """One object per declaration, whichever kernel mentions it. A kernel has the variables of its module, and not the
    module: with that would go the text's syntax tree, megabytes of it."""
    from .runtime.variables import Variable

    key = (declaration.name, str(declaration.type), declaration.init)
    found = known.get(key)
    return found if found is not None else known.setdefault(key, Variable(declaration))
