"""What a user asks of a derivative, checked against the function's signature and what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...analysis import roots as memory_analysis
from ...analysis.promises import NONE, Promises
from ...autodiff.calculus.activity import holds_floats
from ...autodiff.prepare.options import Mode
from ...errors import ArgumentError
from ...ir.ops import Function, Module, Param
from ...ir.types import Array, Pointer, Scalar, Struct, Type
from ...requests import Names, names_in
from ...runtime.signature import c_signature, user_params


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    listed: tuple[str, ...]  # also members of structs, see autodiff/calculus/struct_members.py
    mode: Mode = "joint"
    kept: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    may_alias: bool = False
    tape_budget: int | None = None
    deterministic: bool = False
    promises: Promises = NONE
    changing: frozenset[str] = frozenset()  # between the two launches of a split
    shown: tuple[str, ...] = ()  # the parameters of the user's among the listed
    shorter: tuple[str, ...] = ()  # whose adjoints may have fewer elements
    report_nan: bool = False
    open_ended: bool = False  # arguments are pointers of a host program: where their arrays end, nobody knows

    @property
    def described(self) -> str:
        """What is not as it is by default, as the user wrote it."""
        names = {"keep": self.kept, "assign": self.assigned, "shorter": self.shorter}
        flags = {"may_alias": self.may_alias, "deterministic": self.deterministic, "report_nan": self.report_nan}
        told = ["primal=False"] if self.mode == "reverse" else []
        told += [f'{name}="{", ".join(given)}"' for name, given in names.items() if given]
        told += [f"{name}=True" for name, given in flags.items() if given]
        told += [f"tape_budget={self.tape_budget}"] if self.tape_budget is not None else []
        if self.promises != NONE:
            from .promises import described

            told.append(described(self.promises))
        return ", ".join(told)


def has_derivative(type: Type) -> bool:
    """Whether a parameter of the type can be listed."""
    if isinstance(type, Pointer):
        return holds_floats(type.pointee)
    if memory_analysis.holds_pointers(type):
        return isinstance(type, Struct) and any(is_active(f.type) for f in type.fields)
    return holds_floats(type) and not isinstance(type, Array)


def is_active(member: Type) -> bool:
    """Of a struct that holds pointers."""
    if isinstance(member, Array):
        return is_active(member.element)
    return has_derivative(member) or (holds_floats(member) and not memory_analysis.holds_pointers(member))


def make_settings(
    function: Function,
    parameters: Names,
    mode: Mode,
    keep: Names,
    assign: Names,
    may_alias: bool,
    budget: int | None,
    deterministic: bool = False,
    promises: Promises | None = None,
    changing: frozenset[str] = frozenset(),
    shorter: Names = None,
    report_nan: bool = False,
) -> Settings:
    """The user's choices, checked against the function."""
    params = {p.name: p for p in function.params}
    listed = names_in(parameters, function.params)
    if parameters is None:
        listed = tuple(p.name for p in user_params(function) if has_derivative(p.type))
    for name in listed:
        _check_listed(name, params, function)
    if not listed:
        reason = "no floating-point parameter" if parameters is None else "no parameter is named"
        raise ArgumentError(f"nothing to differentiate: {reason}\n  {c_signature(function)}")
    if len(set(listed)) != len(listed):
        raise ArgumentError(f"a parameter is listed twice in '{', '.join(listed)}'")
    kept, assigned = names_in(keep, function.params, "keep"), names_in(assign, function.params, "assign")
    fewer = names_in(shorter, function.params, "shorter")
    for name in (*kept, *assigned, *fewer):
        if name not in listed:
            raise ArgumentError(f"'{name}' is not among the differentiated parameters {', '.join(listed)}")
    if kept and may_alias:
        problem = "what shares memory with another argument may be read, or stored more than once"
        raise ArgumentError(f"keep and may_alias=True do not go together: {problem}; pass separate buffers, or a copy")
    if kept:
        check_kept(function, kept, mode)
    if assigned:
        check_assigned(function, assigned)
    told = NONE
    if promises is not None:
        from .promises import check_promises

        told = check_promises(function, promises)
    everything = (*listed, *_numbers_in_structs(function, listed))
    asked = (kept, assigned, may_alias, budget, deterministic, told, changing)
    return Settings(everything, mode, *asked, shown=listed, shorter=fewer, report_nan=report_nan)


def _numbers_in_structs(function: Function, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Those beside pointers, which are differentiated as parameters of their own."""
    if not any(isinstance(p.type, Struct) for p in function.params):
        return ()
    from ...autodiff.calculus.struct_members import members_of

    return tuple(m.name for m in members_of(function) if m.struct in listed)


def _check_listed(name: str, params: Mapping[str, Param], function: Function) -> None:
    if name not in params:
        raise ArgumentError(f"{function.name} has no parameter '{name}'\n  {c_signature(function)}")
    if not has_derivative(params[name].type):
        raise no_numbers(params[name], c_signature(function))


def no_numbers(param: Param, signature: str) -> ArgumentError:
    """A parameter that has no derivative is listed."""
    reason = f"parameter '{param.name}' ({param.c_type}) holds no floating-point numbers and cannot be differentiated"
    hint = ": use float or double" if is_of_integers(param.type) else ""
    return ArgumentError(f"{reason}{hint}\n  {signature}")


def is_of_integers(type: Type) -> bool:
    """Whether it is one, or a pointer to some."""
    of = type.pointee if isinstance(type, Pointer) else type
    return isinstance(of, Scalar) and of.kind in ("int", "uint")


def check_outputs(function: Function, parameters: Names, listed: tuple[str, ...]) -> None:
    """A list without an output has no derivative but zero: whoever wrote it left something out."""
    if parameters is None:
        return
    memory = memory_analysis.analyse(function)
    written = memory.written()
    returns = function.result_type is not None and holds_floats(function.result_type)
    by_name = {p.name: p for p in function.params}
    if returns or memory_analysis.UNKNOWN in written or any(by_name[n].value in written for n in listed):
        return
    outputs = [f"'{p.name}'" for p in function.params if p.value in written and has_derivative(p.type)]
    what = f"it writes {', '.join(outputs)}, which must be listed too" if outputs else "it writes nothing to list"
    problem = f"none of '{', '.join(listed)}' is an output of {function.name}, so that every derivative is zero"
    raise ArgumentError(f"{problem}: {what}\n  {c_signature(function)}")


def check_kept(function: Function, names: tuple[str, ...], mode: Mode) -> None:
    """What is not read is overwritten by stores alone, or added to: its adjoint can be left as it is, if need be by
    working on a copy. The adjoint of what is read and written has one value before and another after; but not if all
    that is read is what the thread stored there, and derivatives have it in a register or compute it again."""
    outputs = _pure_outputs(function)
    if not outputs.issuperset(names):
        from ...transforms import loop_registers, stored_values

        function = loop_registers.run(function, Module())
        again = function if mode == "split" else stored_values.run(function, Module())
        outputs |= _pure_outputs(function) | _pure_outputs(again)
    for name in names:
        if name not in outputs:
            raise ArgumentError(f"keep: '{name}' is not a pure output: it is read, or nothing writes it")


def _pure_outputs(function: Function) -> set[str]:
    memory = memory_analysis.analyse(function)
    read = {root for op in memory.loads for root in memory.of(op.ptr)}
    return {p.name for p in function.params if p.value in memory.written() - read}


def check_assigned(function: Function, names: tuple[str, ...]) -> None:
    memory = memory_analysis.analyse(function)
    by_name = {p.name: p.value for p in function.params}
    for name in names:
        if by_name[name] in memory.written():
            raise ArgumentError(f"assign: '{name}' is not a pure input: the kernel writes it")
