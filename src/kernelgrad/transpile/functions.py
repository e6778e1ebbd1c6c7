"""Calls of derivatives of functions: what a request becomes, and the functions that it needs.

A derived function takes the primal's parameters, pointers to adjoints or tangents, and where the primal's value and its
adjoint are. What a request has otherwise, a small function around it has: adjoints that are returned, values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from .. import pipeline
from ..autodiff import custom
from ..autodiff.integers import HINT
from ..backends.cuda.names import in_namespace
from ..errors import Span, UnsupportedError
from ..frontend.clang import Cursor, Kind, TypeKind, identity
from ..frontend.custom_derivatives import CustomDerivatives
from ..frontend.derivatives import holds_pointers
from ..frontend.in_source import Argument, Request
from ..frontend.lowering import Lowering
from ..frontend.types import is_reference
from ..frontend.unit import Unit
from ..frontend.visiting import children_of
from ..ir.ops import Derivative, Function, Module, Value
from ..ir.types import Pointer, Scalar, Type
from ..programs.integer_gradient import kinds_of, listed_integers, real_module
from . import growing_tapes
from .derived_functions import RESULT, Derived, derived_function, plain_type
from .edits import Edits
from .generic_atomics import ADD, ADD_TEXT
from .growing_tapes import TAPE
from .kernels import KernelGradients
from .statics import Statics
from .support import AS
from .tape_memory import HEAD

_SUFFIX = {"reverse": "grad", "forward": "tangent", "augmented": "augmented", "backward": "reverse"}

Source = Callable[[Cursor], str]
Place = Callable[[int], str]  # of a tape with so many bytes, in the text
Keeping = Callable[[Request, tuple[tuple[str, int], ...]], None]


@dataclass
class Around:
    """The function around a derived one: its parameters, what is declared before the call, the call's arguments by
    name, what is done after it, and what it returns."""

    on_host: bool
    params: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    has_memory: bool = False  # the tape is behind a pointer that a call is given
    condition: str = ""  # under which it is called

    def lines(self, derived: Derived) -> Iterator[str]:
        yield from self.before
        args = ", ".join(_cast(self.given[p.name], p, derived) for p in derived.params)
        yield f"{self.condition}{derived.name}({args});"
        yield from self.after


def _cast(text: str, param: object, derived: Derived) -> str:
    type = param.type  # type: ignore[attr-defined]
    return text if plain_type(type) or text.startswith("&") else converted(text, type, derived.types.spell(type))


def converted(text: str, type: Type, spelled: str) -> str:
    """A value of the source's type as one of the generated text's, which is laid out alike."""
    return f"({spelled}){text}" if isinstance(type, Pointer) else f"kg::as<{spelled}>({text})"


class Functions:
    """All of one program. `words`: that occur in it, so that no name is taken twice."""

    def __init__(self, unit: Unit, edits: Edits, words: set[str], kernels: KernelGradients, keeping: Keeping):
        """`keeping`: is told of requests that keep values on stacks, and which these are."""
        self.unit, self.words, self.kernels, self.keeping = unit, words, kernels, keeping
        self.statics = Statics(unit, edits, self.fresh)
        self._texts: dict[str, None] = {}
        self._halves: dict[str, str] = {}  # activities of functions whose passes are apart
        self._reserved: dict[object, str] = {}
        self._names: dict[str, str] = {}  # of derived functions, and their texts
        self._around: dict[str, str] = {}  # by text, the name
        self.called: dict[str, None] = {}  # functions of the program, by what is generated

    def texts(self) -> list[str]:
        return list(self._texts)

    def _need(self, around: Around) -> None:
        if any(ADD in line for line in around.after):
            self._texts.setdefault("".join(in_namespace([ADD_TEXT])))

    def need_conversions(self) -> None:
        self._texts = dict.fromkeys(("#include <cstring>\n" + "".join(in_namespace([AS])), *self._texts))

    def fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self.words:
            number += 1
            found = f"{name}_{number}"
        self.words.add(found)
        return found

    def reserved(self, key: object, name: str) -> str:
        """The same name each time for the same thing."""
        if key not in self._reserved:
            self._reserved[key] = self.fresh(name)
        return self._reserved[key]

    # ---- derived functions

    def derived(self, request: Request, on_host: bool) -> tuple[Derived, Function]:
        """The derivative that a request asks for, and the primal."""
        span = self.unit.span(request.call)
        module, name = self._lowered(request, span)
        primal = module.functions[name]
        self._check_pointees(request, primal)
        args = tuple(Value(p.type) for p in primal.params)
        activity = ",".join(a.activity for a in request.arguments)
        op = Derivative(name, request.mode, activity, (), args, (), span=span)
        in_halves = request.mode in ("augmented", "backward")
        if in_halves and self._halves.setdefault(name, activity) != activity:
            problem = f"the two passes of '{name}' are asked for with other activities, and would have different tapes"
            raise UnsupportedError(problem, span)
        if pipeline.is_program(module, name):
            made = self._apart(self._recorded(module, op))
            self._texts.setdefault(made.text)
            return made, primal
        pairs = zip(request.arguments, primal.params, strict=True)
        own = frozenset(p.name for a, p in pairs if a.shadow is not None and _is_of_thread(a.shadow))
        same = in_halves or may_alias(self.unit, request)
        integers = self._integers(request, primal, on_host)
        if integers:
            module = real_module(pipeline.compile_kernel(module, name), name, frozenset(integers), span)
        made = self._apart(derived_function(module, op, same, on_host, own, integers))
        self._texts.setdefault(made.text)
        if made.stacks:
            self.keeping(request, made.stacks)
        return made, primal

    def _check_pointees(self, request: Request, primal: Function) -> None:
        """Adjoints behind pointers that memory holds are nobody's to find."""
        for argument, param in zip(request.arguments, primal.params, strict=True):
            held = param.type.pointee if isinstance(param.type, Pointer) else param.type
            is_held = not isinstance(held, Scalar) and holds_pointers(held)
            if argument.activity == "dup" and is_held:
                problem = f"'{param.name}' leads to pointers: derivatives behind those cannot be transpiled"
                hint = "pass the pointers themselves, or mark it enzyme_const; module['main']() runs it from Python"
                raise UnsupportedError(problem, self.unit.span(argument.value), hint)

    def _integers(self, request: Request, primal: Function, on_host: bool) -> dict[str, Scalar]:
        """The kinds of those that Clad's calls name, which are differentiated by."""
        pairs = zip(request.arguments, primal.params, strict=True)
        names = frozenset(p.name for a, p in pairs if request.by == "clad" and a.shadow is not None)
        found = kinds_of(primal, frozenset(n for n in names if n in listed_integers(primal, tuple(names))))
        if found and (not on_host or request.mode != "reverse"):
            problem = (
                f"'{next(iter(found))}' holds integers, by which gradients of kernels and host functions are alone"
            )
            raise UnsupportedError(problem, self.unit.span(request.call), HINT)
        return found

    def _lowered(self, request: Request, span: Span) -> tuple[Module, str]:
        """What is differentiated and what it calls, with the derivatives that the source gives of these."""
        lowering = Lowering(self.unit)
        name = lowering.function(request.function, span)
        given = CustomDerivatives(self.unit, lowering.reached)
        if given.probes:
            problem = "a custom derivative that is a template cannot be transpiled"
            raise UnsupportedError(problem, span, "write it for the types that are used")
        if given.refusal is not None:
            raise given.refusal
        if not given.of:
            return lowering.module(), name
        customs = given.lowered(lowering)
        return custom.run(lowering.module(), customs), name

    def _recorded(self, module: Module, op: Derivative) -> Derived:
        """Of a host function that allocates or launches."""
        from .recorded_gradient import RecordedGradient

        if op.mode == "forward":
            problem = f"'{op.fn}' allocates or launches: of such host functions, gradients alone can be transpiled"
            raise UnsupportedError(problem, op.span, "ask for its gradient")
        module = pipeline.with_requests(module, op.fn)
        recorded = RecordedGradient(module, op, self.kernels, self.statics.name)
        made = recorded.derived()
        self.called.update(recorded.called)
        return made

    def _apart(self, made: Derived) -> Derived:
        """Under a name that no other has."""
        renamed, number = made, 1
        while self._names.setdefault(renamed.name, renamed.text) != renamed.text:
            number += 1
            renamed = made.renamed(f"{made.name}_{number}")
        return renamed

    def around(
        self, request: Request, primal: Function, derived: Derived, on_host: bool, in_loop: bool = False
    ) -> Around:
        found = arranged(request, primal, derived, on_host)
        if request.mode in ("augmented", "backward"):
            self._tape(found, request, derived, in_loop)
        self._need(found)
        if not on_host:  # variables of the file, which all device code sees
            found.given |= {p.name: f"&{p.variable}" for p in derived.params if p.variable in derived.variables}
        if any(not isinstance(p.type, Pointer) and not plain_type(p.type) for p in derived.params):
            self.need_conversions()
        missing = next((p for p in derived.params if p.name not in found.given), None)
        if missing is not None:
            problem = f"the derivative of '{primal.name}' takes '{missing.name}' besides, and cannot be transpiled yet"
            raise UnsupportedError(problem, self.unit.span(request.call))
        return found

    def _tape(self, around: Around, request: Request, derived: Derived, in_loop: bool) -> None:
        """The frame is what the call gives and takes: a value, or the bytes of the pointer itself, or memory that the
        pointer leads to."""
        augmented = request.mode == "augmented"
        held = request.call.type if augmented or request.tape is None else request.tape.type
        is_pointer = held.get_canonical().kind == TypeKind.POINTER
        room = held.get_size() if is_pointer else min(held.get_size(), request.tape_bytes)
        if derived.is_recording and is_pointer:
            recording(around, augmented, held.spelling)
            return
        if is_pointer and (derived.grows or derived.frame > room):
            behind(around, augmented, held.spelling, derived, in_loop)
            return
        if derived.is_recording or derived.grows or derived.frame > room:
            raise self._too_large(request, derived, room)
        nbytes = max(1, derived.frame)
        around.before.append(f"alignas(16) unsigned char frame[{nbytes}];")
        around.given[TAPE] = "frame"
        if augmented:
            around.after += [f"{declare(held.spelling, 'tape')}{{}};", f"memcpy(&tape, frame, {nbytes});"]
            around.returned.append("tape")
        else:
            around.params.append(declare(held.spelling, "tape"))
            around.before.append(f"memcpy(frame, &tape, {nbytes});")

    def _too_large(self, request: Request, derived: Derived, room: int) -> UnsupportedError:
        name, span = request.function.spelling, self.unit.span(request.call)
        if derived.is_recording:
            problem = "a tape of host code lies behind a pointer: enzyme_allocated is not supported"
            return UnsupportedError(problem, span, "leave it and the size out, and let the tape be a void *")
        if derived.grows:
            problem = f"the tape of '{name}' has values of every iteration of a loop, and no constant size"
            return UnsupportedError(problem, span, "leave enzyme_allocated out, and let the tape be a void *")
        problem = f"the tape of '{name}' needs {derived.frame} bytes, and has {room}"
        return UnsupportedError(problem, span, "give it a larger type, and its sizeof to enzyme_allocated")

    # ---- Enzyme's calls

    def call(
        self, request: Request, on_host: bool, source: Source, place: Place, in_loop: bool = False
    ) -> tuple[str, str]:
        """What the call of a request is replaced by: a function, and its arguments. `in_loop`: each thread may come to
        it more than once."""
        derived, primal = self.derived(request, on_host)
        around = self.around(request, primal, derived, on_host, in_loop)
        cursors = (*(a.value for a in request.arguments), *(a.shadow for a in request.arguments))
        values = [source(c) for c in (*cursors, request.seed, request.tape) if c is not None]
        if around.has_memory and request.mode == "augmented":
            nbytes = HEAD + -(-derived.frame // 16) * 16
            in_arena = derived.grows or in_loop
            values.append(f"(unsigned char *)malloc({nbytes})" if on_host else place(0 if in_arena else nbytes))
        name = self._named(request, around, derived, on_host)
        return name, ", ".join(values)

    def for_both(self, request: Request, on_device: str, on_host: str) -> str:
        """A function that calls one of the two, wherever it is called."""
        name = self.reserved((on_device, on_host), f"{request.function.spelling}_{_SUFFIX[request.mode]}")
        lines = ["#ifdef __CUDA_ARCH__", f"    return {on_device}(arguments...);"]
        lines += ["#else", f"    return {on_host}(arguments...);", "#endif"]
        head = "template <typename... A>\nstatic __host__ __device__ auto"
        self._texts.setdefault(f"{head} {name}(A &&...arguments)\n{{\n" + "\n".join(lines) + "\n}\n")
        return name

    def _named(self, request: Request, around: Around, derived: Derived, on_host: bool) -> str:
        """The derived function itself where it takes what the call gives, else one around it."""
        order = [around.given.get(p.name) for p in derived.params]
        plain = order == [declared_name(p) for p in around.params] and not (around.before or around.after)
        if plain and all(plain_type(p.type) for p in derived.params):
            return derived.name
        type = request.call.type.spelling if around.returned else "void"
        head = f"static {'' if on_host else '__device__ '}{declare(type, '')}"
        lines = [*around.lines(derived), *self._return(around, type, request)]
        body = f"({', '.join(around.params)})\n{{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
        key = head + body
        if key not in self._around:
            suffix = _SUFFIX[request.mode]
            self._around[key] = self.fresh(f"{request.function.spelling}_{suffix}")
            self._texts.setdefault(f"{head}{self._around[key]}{body}")
        return self._around[key]

    def _return(self, around: Around, type: str, request: Request) -> list[str]:
        if not around.returned or type == "void":
            return []
        is_record = request.call.type.get_canonical().kind == TypeKind.RECORD and request.mode != "augmented"
        if not is_record and len(around.returned) > 1:
            problem = f"{len(around.returned)} adjoints are returned, and the call is declared to return '{type}'"
            raise UnsupportedError(problem, self.unit.span(request.call))
        values = ", ".join(around.returned)
        return [f"return {type}{{{values}}};" if is_record else f"return {values};"]


def recording(around: Around, augmented: bool, held: str) -> None:
    """The tape leads to what a host function did."""
    around.given[TAPE] = "&tape" if augmented else "tape"
    if augmented:
        around.before.append("void *tape = nullptr;")
        around.returned.append(f"({held})tape")
    else:
        around.params.append(declare(held, "tape"))


def behind(around: Around, augmented: bool, held: str, derived: Derived, in_loop: bool) -> None:
    """The frame lies behind the tape's first bytes, which lead to where tapes are counted; that of the host's without a
    constant size is a tape itself. `in_loop`: one of a constant size does not have a place of its own."""
    if around.on_host and derived.grows:
        growing_tapes.on_host(around, augmented, held)
    elif augmented and (derived.grows or in_loop) and not around.on_host:
        growing_tapes.in_arena(around, held, None if derived.grows else derived.frame)
    else:
        around.params.append("unsigned char *tape" if augmented else declare(held, "tape"))
        around.given |= {TAPE: f"(unsigned char *)tape + {HEAD}", "_room": "0", "_size": "nullptr"}
        around.has_memory = True
        if augmented:
            around.returned.append(f"({held})tape")
        elif around.on_host:
            around.after.append("free(tape);")
        else:
            around.condition = "if (kg::is_kept(tape)) "
            around.after.append("kg::used(tape);")


def arranged(request: Request, primal: Function, derived: Derived, on_host: bool) -> Around:
    """How the arguments of a request go to the derived function."""
    around, shadows = Around(on_host), list[str]()
    for argument, param in zip(request.arguments, primal.params, strict=True):
        by_reference = is_reference(argument.parameter.type)
        name, type = param.name, argument.parameter.type.spelling
        around.params.append(declare(type, name))
        around.given[name] = f"({_pointer(type)})&{name}" if by_reference else name
        adjoint = derived.listed.get(name) if request.mode != "augmented" else None
        if argument.shadow is not None:
            shadows.append(_shadow(around, argument, name, f"d_{name}", adjoint.name if adjoint else None, request))
        elif adjoint is not None:
            _own(around, name, adjoint.name, type, request)
    around.params += shadows
    if primal.result_type is not None:
        _value(around, primal, derived, request)
    return around


def _shadow(around: Around, argument: Argument, name: str, shadow: str, adjoint: str | None, request: Request) -> str:
    """The parameter for a shadow."""
    type = argument.parameter.type.spelling
    is_number = argument.parameter.type.get_canonical().kind not in _POINTERS
    if adjoint is None:
        return f"const void *{shadow}"
    if is_reference(argument.parameter.type):
        by_pointer = argument.shadow is not None and argument.shadow.type.get_canonical().kind == TypeKind.POINTER
        around.given[adjoint] = shadow if by_pointer else f"&{shadow}"
        return declare(_pointer(type) if by_pointer else type.replace("const ", "", 1), shadow)
    if not is_number:
        around.given[adjoint] = shadow
        return declare(type.replace("const ", "", 1), shadow)
    if request.mode == "forward":
        around.given[adjoint] = f"&{shadow}"
        return declare(type, shadow)
    # Others may add to the adjoint of a number too.
    plain = type.replace("const ", "", 1)
    around.before.append(f"{plain} own_{shadow} = 0;")
    around.given[adjoint] = f"&own_{shadow}"
    around.after.append(f"*{shadow} += own_{shadow};" if around.on_host else f"{ADD}({shadow}, own_{shadow});")
    return declare(f"{plain} *", shadow)


_POINTERS = (TypeKind.POINTER, TypeKind.CONSTANTARRAY, TypeKind.INCOMPLETEARRAY, TypeKind.LVALUEREFERENCE)


def _own(around: Around, name: str, adjoint: str, type: str, request: Request) -> None:
    """An adjoint that is returned, or a tangent of 1."""
    plain = type.replace("const ", "", 1)
    around.before.append(f"{plain} d_{name} = {1 if request.mode == 'forward' else 0};")
    around.given[adjoint] = f"&d_{name}"
    if request.mode != "forward":
        around.returned.append(f"d_{name}")


def _value(around: Around, primal: Function, derived: Derived, request: Request) -> None:
    type = derived.types.spell(primal.result_type) if isinstance(primal.result_type, Scalar) else None
    if type is None:
        raise UnsupportedError("a function that returns no number cannot be transpiled yet", primal.span)
    around.before.append(f"{type} value;")
    around.given[RESULT] = "&value"
    adjoint = derived.listed.get(RESULT)
    if adjoint is None or request.mode == "augmented":
        return
    seed = "0" if request.mode == "forward" else "1" if request.seed is None else "seed"
    if request.seed is not None:
        around.params.append(f"{type} seed")
    around.before.append(f"{type} d_value = {seed};")
    around.given[adjoint.name] = "&d_value"
    if request.mode == "forward":
        around.returned.append("d_value")


def _pointer(reference: str) -> str:
    """`const double &`: `double *`."""
    return f"{reference.replace('const ', '', 1).rstrip('& ')} *"


def declare(type: str, name: str) -> str:
    """`double *` and `x`: `double *x`; `double[3]` and `x`: `double x[3]`."""
    head, bracket, tail = type.partition("[")
    if bracket:
        return f"{head.rstrip()} {name}[{tail}"
    return f"{type}{name}" if type.endswith(("*", "&")) else f"{type} {name}"


def declared_name(text: str) -> str:
    return text.partition("[")[0].replace("*", " ").replace("&", " ").split()[-1]


# ---- memory that may be the same ------------------------------------------------------------------------------------


def may_alias(unit: Unit, request: Request) -> bool:
    """Whether two of the pointers that are given may lead to the same memory, taking it that a kernel's parameters do
    not."""
    cursors = [c for a in request.arguments for c in (a.value, a.shadow) if c is not None and _is_pointer(c)]
    roots = [_root(unit, c) for c in cursors]
    return any(root is None for root in roots) or any(a == b for a, b in combinations(roots, 2))


def _is_pointer(c: Cursor) -> bool:
    return c.type.get_canonical().kind in _POINTERS


_THROUGH = (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR, Kind.CSTYLE_CAST_EXPR, Kind.UNARY_OPERATOR, Kind.ARRAY_SUBSCRIPT_EXPR,
            Kind.BINARY_OPERATOR, Kind.MEMBER_REF_EXPR)  # fmt: skip


def _variable(c: Cursor) -> Cursor | None:
    """The variable or parameter whose memory an expression leads to, if it is one."""
    while c.kind in _THROUGH:
        inside = [k for k in children_of(c) if k.kind.is_expression()]
        if c.kind == Kind.BINARY_OPERATOR:  # the pointer of a sum
            inside = [k for k in inside if _is_pointer(k)]
        if not inside or (c.kind == Kind.BINARY_OPERATOR and len(inside) != 1):
            return None
        c = inside[0]
    target = c.referenced if c.kind == Kind.DECL_REF_EXPR else None
    return target if target is not None and target.kind in (Kind.PARM_DECL, Kind.VAR_DECL) else None


def _root(unit: Unit, c: Cursor) -> int | None:
    """The kernel's parameter, or the variable that is no pointer, whose memory an expression leads to."""
    target = _variable(c)
    if target is None:
        return None
    owner = target.semantic_parent
    of_kernel = target.kind == Kind.PARM_DECL and owner is not None and unit.function_kind(owner) == "kernel"
    return identity(target) if of_kernel or target.type.get_canonical().kind not in _LEADING else None


def _is_of_thread(c: Cursor) -> bool:
    """Whether it leads to a variable of the thread's own."""
    target = _variable(c)
    if target is None or target.type.get_canonical().kind in _LEADING:
        return False
    owner = target.semantic_parent
    in_function = owner is not None and owner.kind in _OWNERS
    return in_function and target.storage_class.name == "NONE" and Kind.CUDASHARED_ATTR not in _kinds(target)


def _kinds(declaration: Cursor) -> set[Kind]:
    return {k.kind for k in children_of(declaration)}


_OWNERS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION)
_LEADING = (TypeKind.POINTER, TypeKind.LVALUEREFERENCE)
