"""What a user calls. Thin; the work is elsewhere, imported when needed."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from . import requests
from .errors import ArgumentError, KernelGradError
from .locks import compiling
from .module import Module

if TYPE_CHECKING:
    from .checking.check_gradient import GradientReport
    from .derivatives.asked.promises import Promises
    from .derivatives.device_function import DeviceFunction, FunctionGradient
    from .derivatives.differentiated import Differentiated
    from .derivatives.gradient import Gradient
    from .derivatives.jvp import FunctionTangent, Tangent
    from .derivatives.second_order.second_order import SecondOrder
    from .derivatives.split import Forward, Reverse
    from .frontend.custom_text import CustomGradient
    from .host.custom_steps import CustomFunction
    from .host.program import Program
    from .host.program_gradient import ProgramGradient
    from .host.program_tangent import ProgramTangent
    from .kernel import Kernel
    from .programs.function import HostFunction
    from .programs.gradient import HostGradient

Defines = Mapping[str, Any] | Sequence[str]
Names = str | Sequence[str] | None


def compile(
    source: str,
    *,
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    defines: Defines = (),
    std: str = "c++17",
    name: str = "kernel.cu",
    custom: CustomGradient | Sequence[CustomGradient] = (),
) -> Module:
    """A module from CUDA C++ text. `defines`: {"N": 4} or ["N=4"]; `name` is what error messages call the text.
    `custom`: derivatives of functions in it, `kg.custom_gradient("f", pullback)`."""
    text = requests.source_text(source)
    folders, macros = requests.folders(include_dirs), requests.macros(defines)
    given = _custom_gradients(custom)
    return Module(text, requests.path("name", name), folders, macros, requests.standard(std), given)


def _custom_gradients(given: Any) -> tuple[CustomGradient, ...]:
    if given in ((), []):
        return ()
    from .frontend.custom_text import CustomGradient

    found = (given,) if isinstance(given, CustomGradient) else given
    if not isinstance(found, tuple | list) or not all(isinstance(one, CustomGradient) for one in found):
        raise requests.wrong("custom", 'derivatives, as in kg.custom_gradient("f", pullback)', given)
    return tuple(found)


def load(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    defines: Defines = (),
    std: str = "c++17",
    custom: CustomGradient | Sequence[CustomGradient] = (),
) -> Module:
    """A module from a file, or from the files of one program, in the order given; headers beside them are found. The
    rest is as for `compile`."""
    files = [Path(requests.path("load", p)) for p in (path if isinstance(path, list | tuple) else [path])]
    if not files:
        raise requests.wrong("load", "a path, or several", path)
    name, text = _program_text(files)
    folders = (*dict.fromkeys(str(file.parent.resolve()) for file in files), *requests.folders(include_dirs))
    given = _custom_gradients(custom)
    return Module(text, name, folders, requests.macros(defines), requests.standard(std), given)


def _program_text(files: list[Path]) -> tuple[str, str]:
    """The name and the text of one file; several are included one after another."""
    texts = []
    for file in files:
        try:
            texts.append(file.read_text(errors="replace"))
        except OSError as error:
            raise KernelGradError(f"cannot read {file}: {error.strerror}") from error
    if len(files) == 1:
        return str(files[0]), texts[0]
    return "program.cu", "".join(f'#include "{file.resolve()}"\n' for file in files)


def of_cupy(target: Any) -> Any:
    """The kernel of a `cupy.RawKernel`, which has its source with it; anything else is itself."""
    code, name = getattr(target, "code", None), getattr(target, "name", None)
    if not isinstance(code, str) or not isinstance(name, str):
        return target
    return _of_raw(code, name, tuple(getattr(target, "options", None) or ()))


@lru_cache(256)
def _of_raw(code: str, name: str, options: tuple[str, ...]) -> Any:
    """NVRTC's options: those that change what the text means are taken, the others are for the compiler."""
    joined = re.sub(r"(^|\s)(-I|-D)\s+", r"\1\2", " ".join(options)).replace("--define-macro=", "-D")
    words = joined.replace("--include-path=", "-I").replace("--std=", "-std=").split()
    found = {flag: [w.removeprefix(flag) for w in words if w.startswith(flag)] for flag in ("-D", "-I", "-std=")}
    std = (found["-std="] or ["c++17"])[-1]
    return compile(code, include_dirs=found["-I"], defines=found["-D"], std=std, name=f"{name}.cu")[name]


class GradientSettings(TypedDict, total=False):
    """The keywords of `gradient`."""

    primal: bool
    keep: Names
    assign: Names
    shorter: Names
    may_alias: bool
    tape_budget: int | str | None
    deterministic: bool
    assume: Promises | None
    report_nan: bool


@overload
def gradient(target: Kernel, parameters: Names = None, **settings: Unpack[GradientSettings]) -> Gradient: ...
@overload
def gradient(
    target: DeviceFunction, parameters: Names = None, **settings: Unpack[GradientSettings]
) -> FunctionGradient: ...
@overload
def gradient(target: HostFunction, parameters: Names = None, **settings: Unpack[GradientSettings]) -> HostGradient: ...
@overload
def gradient(target: Gradient | Tangent) -> SecondOrder: ...
@overload
def gradient(target: Program) -> ProgramGradient: ...


@compiling
def gradient(
    target: Kernel | DeviceFunction | HostFunction | Gradient | Tangent | Program,
    parameters: str | Sequence[str] | None = None,
    *,
    primal: bool = True,
    keep: str | Sequence[str] | None = None,
    assign: str | Sequence[str] | None = None,
    shorter: str | Sequence[str] | None = None,
    may_alias: bool = False,
    tape_budget: int | str | None = None,
    deterministic: bool = False,
    assume: Promises | None = None,
    report_nan: bool = False,
) -> Gradient | FunctionGradient | SecondOrder | ProgramGradient | HostGradient:
    """The reverse-mode derivative with respect to the named parameters, outputs and inputs alike ("out, in"); all
    floating-point ones by default. Of a kernel, a function, or a `cupy.RawKernel`.

    `primal=False`: only the reverse; buffers hold what they held before the kernel, also those that it writes in place.
    `keep`: pure outputs whose adjoint is left as it is. `assign`: pure inputs whose adjoint is written, not
    added to. `may_alias=True`: arguments may share memory. `deterministic=True`: bitwise the same adjoints from run to
    run, without floating-point atomics of the gradient's own; what threads would add at once is logged and added in a
    fixed order after the launch. Atomics of the kernel itself stay, and what is computed from their results may vary.
    `assume=kg.assume(...)`: what you promise of the arguments. `shorter`: parameters whose adjoint may have fewer
    elements than the argument, since the launch reaches no more of them. `report_nan=True`: a launch ends with a
    `NotFiniteError` that points at the first line of the reverse at which a NaN or an infinity arose; it is slower, and
    on a GPU waits for the launch.

    Integers that are named (`int *out, int *in`) are taken as the real numbers that they stand for, where they are only
    added, subtracted and multiplied; their adjoints are integers like them, or doubles.

    An adjoint has its argument's form and size: a number's is an array of one, a struct's a pointer to one struct, that
    of a struct with pointers a struct of adjoints, in which a number's is an array of one. Half-precision buffers take
    half or float adjoints, accumulated in float. `__constant__` and `__device__` variables are listed by their names,
    the parameters of a pack by the pack's.

    Of a gradient, which takes y, x and then d_y, d_x: the gradient of that map, all of these with adjoints d2_y, d2_x,
    d2_d_y, d2_d_x after them. Of a `jvp`, which takes y, x and t_y, t_x: adjoints d_y, d_x, d_t_y, d_t_x. No options.

    Of a program (`tape.program`): `g(*inputs, *seeds)` gives the adjoints of its inputs; it takes no other arguments.
    """
    from .derivatives.asked.settings import check_outputs, make_settings
    from .derivatives.gradient import Gradient
    from .kernel import Kernel

    target = of_cupy(target)
    requests.flags(primal=primal, may_alias=may_alias, deterministic=deterministic, report_nan=report_nan)
    if not isinstance(target, Kernel):
        from .derivatives.device_function import DeviceFunction, FunctionGradient

        given = {"primal": not primal, "keep": keep, "assign": assign, "shorter": shorter, "may_alias": may_alias,
                 "deterministic": deterministic, "assume": assume is not None and assume.is_given,
                 "report_nan": report_nan}  # fmt: skip
        if not isinstance(target, DeviceFunction):
            return _gradient_of_other(target, parameters, tape_budget, [n for n, value in given.items() if value])
    tape_budget = requests.memory_size("tape_budget", tape_budget)
    requests.derivable(target)
    integers, target = _real(target, parameters)
    of: Any = _with_variables(target, parameters)
    mode: Any = "joint" if primal else "reverse"
    settings = make_settings(
        of.function, parameters, mode, keep, assign, may_alias, tape_budget, deterministic, assume,
        shorter=shorter, report_nan=report_nan,
    )  # fmt: skip
    check_outputs(of.function, parameters, settings.shown)
    made = Gradient(of, settings) if isinstance(of, Kernel) else FunctionGradient(of, settings)
    _warn_if_zero(made)
    return made if integers is None else integers(made)


def _real(target: Any, parameters: Any) -> tuple[Any, Any]:
    """Where integers are listed: what makes the gradient by them of that by doubles, and the target with doubles."""
    from .derivatives.asked.settings import is_of_integers
    from .ir.types import Pointer

    pointers = (p.type for p in target.function.params if isinstance(p.type, Pointer))
    if parameters is None or not any(map(is_of_integers, pointers)):
        return None, target
    from .programs.integer_gradient import IntegerGradient, listed_integers, real_target

    names = listed_integers(target.function, parameters)
    if not names:
        return None, target
    return lambda made: IntegerGradient(target, made, names), real_target(target, names)


def _gradient_of_other(
    target: Any, parameters: Any, tape_budget: Any, asked: list[str]
) -> SecondOrder | ProgramGradient | HostGradient:
    """Of what is no kernel and no device function. `asked`: the options that were given."""
    from .derivatives.device_function import DeviceFunction
    from .derivatives.gradient import Gradient
    from .derivatives.jvp import Tangent
    from .host.program import Program
    from .kernel import Kernel
    from .programs.function import HostFunction

    if isinstance(target, Program):
        requests.no_options("gradient", target, parameters, asked or None, tape_budget)
        return _of_program(target)
    if isinstance(target, HostFunction):
        requests.derivable(target)
        return _host_gradient(target, parameters, tape_budget, asked)
    requests.target("gradient", target, Kernel, DeviceFunction, Gradient, Tangent)
    requests.derivable(target)
    requests.no_options("gradient", target, asked or None, tape_budget)
    requests.not_reporting("gradient", target)
    return _second(target, parameters)


def _host_gradient(target: HostFunction, parameters: Any, tape_budget: Any, asked: list[str]) -> HostGradient:
    from .programs.gradient import HostGradient

    if asked:
        raise ArgumentError(f"gradient: {', '.join(asked)}: of kernels, not of host functions as {target.name}")
    return HostGradient(target, parameters, requests.memory_size("tape_budget", tape_budget))


def _second(target: Gradient | Tangent, parameters: str | Sequence[str] | None) -> SecondOrder:
    from .derivatives.gradient import Gradient
    from .derivatives.second_order.kinds import gradient_of_gradient, gradient_of_tangent

    if isinstance(target, Gradient):
        return gradient_of_gradient(target, parameters)
    return gradient_of_tangent(target, parameters)


def _with_variables(target: Any, parameters: str | Sequence[str] | None) -> Any:
    """With the module variables that derivatives concern, if it uses any, as parameters."""
    if not getattr(target, "kernel", target).module.globals:
        return target
    from .derivatives.module_variables import with_variables

    return with_variables(target, parameters)


def _of_program(program: Any) -> ProgramGradient:
    from .host.program import Program
    from .host.program_gradient import ProgramGradient

    requests.target("gradient", program, Program)
    return ProgramGradient(program)


def _tangent_of_program(program: Program) -> ProgramTangent:
    from .host.program_tangent import ProgramTangent

    if isinstance(program, ProgramTangent):
        raise ArgumentError(f"jvp: forward mode over forward mode is not there, and this is {program!r}")
    return ProgramTangent(program)


def _warn_if_zero(made: Differentiated) -> None:
    if made.is_zero:
        problem = (
            "nothing that is differentiable leads from a listed input to a listed output: every adjoint becomes zero"
        )
        warnings.warn(f"{made.shown.name}: {problem}", stacklevel=4)  # past `compiling`


def assume(
    *,
    unique: str | Sequence[str] | None = None,
    disjoint: str | tuple[str, str] | list[str | tuple[str, str]] | None = None,
    multiple: Mapping[str, int] | None = None,
    within: Mapping[str, tuple[int, int]] | None = None,
    results: str | Sequence[str] | None = None,
) -> Promises:
    """Promises for `kg.gradient` and `kg.split`, which make faster code of them. `unique="idx"`: the index buffer idx
    holds no value twice among the elements that a launch reads, so that `x[idx[i]]` is another element for another i.
    `disjoint=("offset", "count")`: the segments from offset[s] to offset[s] + count[s] do not overlap;
    `disjoint="row"`: nor do those from row[s] to row[s + 1]. `multiple={"n": 32}`, `within={"n": (1, 1024)}`: what
    divides an integer, or all that a buffer of integers holds, and from where to where it goes, both included.
    `results="y"`: the output y still holds what the kernel wrote there when a gradient with primal=False runs.
    Only `g.check(...)` tests them: where a promise is broken, adjoints are wrong."""
    from .derivatives.asked.promises import make_promises

    return make_promises(unique, disjoint, multiple, within, results)


@overload
def jvp(target: Kernel, parameters: Names = None, *, report_nan: bool = False) -> Tangent: ...
@overload
def jvp(target: Gradient, parameters: Names = None) -> SecondOrder: ...
@overload
def jvp(target: DeviceFunction, parameters: Names = None, *, report_nan: bool = False) -> FunctionTangent: ...
@overload
def jvp(target: Program) -> ProgramTangent: ...


@compiling
def jvp(
    target: Kernel | Gradient | DeviceFunction | Program, parameters: Names = None, *, report_nan: bool = False
) -> Tangent | FunctionTangent | SecondOrder | ProgramTangent:
    """The forward-mode derivative: `t[grid, block](*arguments, *tangents)`, `t.execute(...)` of a function. Of a
    gradient: second derivatives, and its adjoints may be listed too ("out, in, d_out, d_in"). `report_nan`: as of
    `gradient`, of the first tangent that is not finite in a thread that stores such a tangent.

    Of a program (`tape.program`): `t(*inputs, *tangents)` gives its outputs and their tangents, of all inputs and
    outputs with floating-point numbers; it takes no other arguments. `kg.gradient` of that is second order."""
    from .derivatives.device_function import DeviceFunction
    from .derivatives.gradient import Gradient
    from .derivatives.jvp import make_tangent
    from .kernel import Kernel

    requests.flags(report_nan=report_nan)
    if not isinstance(target, Kernel | DeviceFunction | Gradient):
        from .host.program import Program

        if isinstance(target, Program):
            requests.no_options("jvp", target, parameters, report_nan)
            return _tangent_of_program(target)
    of: Any = requests.target("jvp", of_cupy(target), Kernel, DeviceFunction, Gradient)
    requests.derivable(of)
    if isinstance(of, Gradient):
        from .derivatives.second_order.kinds import tangent_of_gradient

        requests.no_options("jvp", of, report_nan)
        requests.not_reporting("jvp", of)
        return tangent_of_gradient(of, parameters)
    return make_tangent(of, parameters, report_nan)


@compiling
def hvp(kernel: Kernel, parameters: str | Sequence[str] | None = None) -> SecondOrder:
    """Hessian times vector: `h = hvp(kernel, "y, x")`, then `h[grid, block](*arguments, d_y, v_x, hv_x)`.

    With adjoints d_y of what the kernel writes, the number ⟨d_y, y⟩ has a Hessian in what it reads: hv_x becomes the
    product of that with the direction v_x (written, not added to). After the arguments come the adjoints of all listed
    outputs, the directions of all listed inputs, the products of all listed inputs; what is read and written has all
    three. Adjoints and directions stay as they are. None: a direction of zero, a product that is not wanted. `y`
    becomes what the kernel makes of it."""
    from .derivatives.second_order.kinds import hessian_vector
    from .kernel import Kernel

    requests.target("hvp", kernel, Kernel)
    requests.derivable(kernel)
    return hessian_vector(kernel, parameters)


def check_gradient(
    target: Kernel | DeviceFunction | Gradient | CustomFunction,
    parameters: str | Sequence[str] | None = None,
    grid: Any = None,
    block: Any = None,
    args: Sequence[Any] = (),
    *,
    shared: int = 0,
    rtol: float = 1e-8,
    seed: int = 0,
) -> GradientReport:
    """Compares reverse mode, forward mode and finite differences, on copies of the arguments and in double precision.

    Of a kernel, `grid` and `block` are the launch to check. Raises `GradientError` where reverse and forward mode
    differ; where finite differences differ from both, the report has a note: the function is not differentiable there.
    Of a gradient, whose arguments are the kernel's and the adjoints: its second derivatives, against its differences.
    That is an error, too, if a function has a custom derivative. Of a Python function with `@kg.custom_gradient`, which
    takes no launch: `check_gradient(step, "v, u", args=(v, u))`, its reverse against finite differences, in the
    precision of the arrays.
    """
    from .checking.check_gradient import check
    from .derivatives.device_function import DeviceFunction
    from .derivatives.gradient import Gradient
    from .host.check_step import check_step
    from .host.custom_steps import CustomFunction
    from .kernel import Kernel

    if isinstance(target, CustomFunction):
        return check_step(target, parameters, requests.arguments("check_gradient", args), requests.seed(seed))
    known = requests.target("check_gradient", of_cupy(target), Kernel, DeviceFunction, Gradient)
    requests.derivable(known)
    args, rtol = requests.arguments("check_gradient", args), requests.tolerance("rtol", rtol)
    shared = requests.number_of_bytes("shared", shared) or 0
    return check(known, parameters, grid, block, tuple(args), shared, rtol, requests.seed(seed))


@compiling
def split(
    kernel: Kernel,
    parameters: str | Sequence[str] | None = None,
    *,
    unchanged: str | Sequence[str] | None = None,
    shorter: str | Sequence[str] | None = None,
    may_alias: bool = False,
    deterministic: bool = False,
    assume: Promises | None = None,
) -> tuple[Forward, Reverse]:
    """The two halves of a gradient: `tape = forward[grid, block](*arguments)`, later `reverse[grid, block](tape,
    *arguments, *adjoints)`.

    Between the two anything may change: buffers, structs' buffers, `__device__` and `__constant__` variables. What the
    reverse needs of them is kept with the tape, as a copy of the buffer or as the values that were read, whichever is
    fewer bytes for the launch. `unchanged="x, w"`: your promise that these hold the same when the reverse runs; nothing
    of them is kept. `tape = forward.check(grid, block, *arguments)` and `reverse.check(grid, block, tape, ...)` tell if
    it is broken. `shorter`, `may_alias`, `deterministic`, `assume`: as of `gradient`."""
    from .derivatives.asked.settings import check_outputs, make_settings
    from .derivatives.module_variables import with_variables
    from .derivatives.split import Forward, Reverse
    from .kernel import Kernel
    from .launches.memory.saved_buffers import changing

    kernel = requests.target("split", of_cupy(kernel), Kernel)
    requests.derivable(kernel)
    requests.flags(may_alias=may_alias, deterministic=deterministic)
    kernel = with_variables(kernel, parameters)
    saved = changing(kernel, unchanged)
    settings = make_settings(
        kernel.function, parameters, "split", None, None, may_alias, None, deterministic, assume, saved, shorter
    )
    check_outputs(kernel.function, parameters, settings.shown)
    forward = Forward(kernel, settings)
    _warn_if_zero(forward)
    return forward, Reverse(forward)


def custom_gradient(
    name: str | None = None,
    pullback: str | None = None,
    *,
    tangent: str | None = None,
    writes: str | Sequence[str] | None = None,
    updates: str | Sequence[str] | None = None,
) -> Any:
    """Your own derivative of a `__device__` function, for `kg.compile(source, custom=...)`, or of a Python function
    that is a step of a recorded program.

    `kg.custom_gradient("f", pullback)`: CUDA C++ text of a function `f_pullback`. For `R f(A a, const B *b, int n)` it
    is `__device__ void f_pullback(A a, const B *b, int n, R d_result, A *d_a, B *d_b)`, and adds to the adjoints of
    what holds floating-point numbers; it is linear in `d_result`. `tangent`: likewise `R f_tangent(A a, ..., A t_a)`
    for forward mode, which follows from the pullback where none is given, and the other way round. In the source, the
    same functions stand in the namespace `kernelgrad::custom_derivatives`, or in Clad's.

    `@kg.custom_gradient(writes="v", updates="w")` of `def step(v, u, w, n)`: what a call does is one step of a
    recording. `writes`: arrays among the arguments that it writes whole and does not read; `updates`: that it reads and
    writes. `@step.reverse` is for its reverse, a function of the arguments and of the adjoints of those that are arrays
    of floats, `def _(v, u, w, n, d_v, d_u, d_w)`: it adds to `d_u`, and what it leaves in `d_w` is the adjoint of what
    `w` held before. The arguments hold what they held before the step, and stay so."""
    from .frontend.custom_text import CustomGradient

    if name is None and pullback is None and tangent is None:
        from .host.custom_steps import CustomFunction

        listed = requests.names("writes", writes), requests.names("updates", updates)
        return lambda function: CustomFunction(requests.function("custom_gradient", function), *listed)
    if callable(name):
        raise ArgumentError("custom_gradient: say what it writes: @kg.custom_gradient(writes='v')")
    for what, text in (("the name of a function", name), ("pullback", pullback or ""), ("tangent", tangent or "")):
        if not isinstance(text, str):
            raise ArgumentError(f"custom_gradient: {what} is a string, got {type(text).__name__}")
    if writes is not None or updates is not None:
        raise ArgumentError("custom_gradient: writes= and updates= are for Python functions")
    assert name is not None
    return CustomGradient(name, pullback, tangent)
