"""What stands for `clad::gradient(f, "a, b")` and `clad::differentiate(f, "a")`: a struct with the members that are
called of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..frontend.in_source import Argument, Request
from ..frontend.unit import Unit
from ..ir.types import Struct
from .derived_functions import plain_type
from .functions import Functions, converted, declare
from .host_function import HostFunction, Shape
from .kernels import KernelGradients

_NAMES = {"reverse": "gradient", "forward": "derivative"}


@dataclass(frozen=True)
class Handle:
    """`asked`: what it stands for. `members`: bodies by heads."""

    name: str
    asked: str
    members: dict[str, str]

    @property
    def text(self) -> str:
        body = "\n".join(head + body for head, body in self.members.items())
        return f"// In place of {self.asked}.\nstruct {self.name} {{\n{body}}};\n"

    def merged(self, other: Handle) -> Handle | None:
        """With the members of both; None where they differ."""
        members = dict(self.members)
        for head, body in other.members.items():
            twin = next((h for h in members if h != head and _anywhere(h) == _anywhere(head)), None)
            if twin is not None:
                head, body = _anywhere(head), _on_either(twin, members.pop(twin), head, body)
            if members.setdefault(head, body) != body:
                return None
        return replace(self, members=members)


_BOTH = "__host__ __device__ "


def _anywhere(head: str) -> str:
    """The head of a member that device and host code call."""
    margin, text = head[: len(head) - len(head.lstrip())], head.lstrip()
    return f"{margin}{_BOTH}{text.removeprefix(_BOTH).removeprefix('__device__ ')}"


def _on_either(head: str, body: str, other_head: str, other: str) -> str:
    """One body of two: in device code that of the head that is of the device."""
    if _BOTH in head or _BOTH in other_head:  # one of them is of both already
        whole, part = (body, other) if _BOTH in head else (other, body)
        return whole if part in whole else f"{whole}{part}"  # which is none of both, and so is refused
    device, host = (body, other) if "__device__ " in head else (other, body)
    return f"#ifdef __CUDA_ARCH__\n{device}#else\n{host}#endif\n"


def handle_of(request: Request, on_host: bool, functions: Functions, kernels: KernelGradients, unit: Unit) -> Handle:
    """With what one call of it needs."""
    key = unit.qualified_name(request.function), request.mode, request.listed
    name = functions.reserved(key, f"{request.function.spelling}_{_NAMES[request.mode]}")
    if request.misuse is not None:
        members = _misused(request)
    elif request.configuration:
        members = _launched(request, kernels.of(request), functions)
    else:
        members = _executed(request, on_host, functions)
    asked = "gradient" if request.mode == "reverse" else "differentiate"
    return Handle(name, f"clad::{asked}({request.function.spelling}, ...)", members)


def _executed(request: Request, on_host: bool, functions: Functions) -> dict[str, str]:
    derived, primal = functions.derived(request, on_host)
    around = functions.around(request, primal, derived, on_host)
    returned = around.returned if request.mode == "forward" else []
    type = derived.types.spell(primal.result_type) if returned and primal.result_type is not None else "void"
    lines = [*around.lines(derived), *(f"return {value};" for value in returned)]
    qualifier = "" if on_host else "__device__ "
    return _member(f"{qualifier}{type} execute({', '.join(around.params)}) const", lines)


def _member(head: str, lines: list[str]) -> dict[str, str]:
    return {f"    {head}\n": "    {\n" + "".join(f"        {line}\n" for line in lines) + "    }\n"}


def _misused(request: Request) -> dict[str, str]:
    """Says what Clad says."""
    called = "execute_kernel" if "non-global" in (request.misuse or "") else "execute"
    head = f"template <typename... A>\n    void {called}(A &&...) const"
    return _member(head, [f'printf("{request.misuse}\\n");'])


def _launched(request: Request, function: HostFunction, functions: Functions) -> dict[str, str]:
    """`execute_kernel` with and without shared memory and a stream."""
    own = [(a.parameter.type.spelling, a.parameter.spelling) for a in request.arguments]
    adjoints = [(_adjoint_type(a), f"d_{a.parameter.spelling}") for a in request.shadows]
    given = []
    for (_, name), param in zip((*own, *adjoints), function.params, strict=True):
        spelled = function.types.spell(param.type, param.const)
        given.append(name if plain_type(param.type) else converted(name, param.type, spelled))
        if isinstance(param.type, Struct):
            functions.need_conversions()
    addresses = list[str]()
    for param in function.variables:
        address = f"{param.name}_address"
        addresses.append(f"void *{address};")
        found = f"cudaGetSymbolAddress(&{address}, {param.variable})"
        addresses.append(f"if (cudaError_t error = {found}) return error;")
        given.append(f"({function.types.spell(param.type, param.const)}){address}")
    declared = ",\n        " + ", ".join(declare(type, name) for type, name in (*own, *adjoints))
    launch, more, passed = "dim3 grid, dim3 block", ", size_t shared, cudaStream_t stream", ", ".join(given)
    head, shape, checked, fits = "cudaError_t execute_kernel", "grid, block, ", list[str](), dict[str, str]()
    if function.shape is not None:
        shape, checked = "", ["if (!fits(grid, block)) return cudaErrorInvalidConfiguration;"]
        fits = _member(f"static bool fits({launch})", [f"return {_condition(function.shape)};"])
    calls = [f"return {function.name}({shape}{how}, {passed});" for how in ("shared, stream", "0, nullptr")]
    return {
        **fits,
        **_member(f"{head}({launch}{more}{declared}) const", [*checked, *addresses, calls[0]]),
        **_member(f"{head}({launch}{declared}) const", [*checked, *addresses, calls[1]]),
    }


def _condition(shape: Shape) -> str:
    """Whether a launch has the grid and block that the gradient is for."""
    named = zip(("grid", "block"), shape, strict=True)
    return " && ".join(
        f"{name}.{axis} == {n}" for name, extents in named for axis, n in zip("xyz", extents, strict=True)
    )


def _adjoint_type(argument: Argument) -> str:
    type = argument.parameter.type.spelling.replace("const ", "", 1)
    return type if type.endswith("*") else f"{type} *"
