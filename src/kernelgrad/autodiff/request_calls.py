"""The call of a derived function in place of one request in device code, and what it needs around it: adjoints of
numbers, the tape (Note [Requests] in `requested.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..ir.builder import Builder, linear_block, linear_thread, pointee
from ..ir.ops import Call, Derivative, Fence, Function, Op, Param, Value
from ..ir.types import BOOL, I64, U8, Array, Pointer, Type
from .request_exits import leave

if TYPE_CHECKING:
    from .requested import Caller

RESULT = "_result"
HEADER = 256  # bytes before the tapes of a launch: how many of them are not used yet, and the most that a thread needed
NEEDED = 8  # where the latter is
_MISSING = 64  # what stands for a tape that found no room: a word that leads nowhere
WORD = 8  # of each tape: where those that are not used yet are counted, and whether it was used
PART = 16  # bytes before a thread's tapes in an arena: how many it has


@dataclass(frozen=True)
class Made:
    """Derived functions by mode. `listed`: the parameters that have an adjoint, with the derived function's parameter
    for it. `frame`: bytes of the tape between two of them."""

    names: dict[str, str]
    listed: dict[str, Param]
    frame: int = 0
    grows: bool = False  # and that is not the same for every call
    stacks: tuple[tuple[str, Type], ...] = ()  # endings of the parameters for stacks, and of what type these are


class RequestCall:
    def __init__(self, caller: Caller, op: Derivative, made: Made, in_loop: bool):
        self.caller, self.op, self.made, self.in_loop = caller, op, made, in_loop
        mode = "backward" if made.stacks else op.mode  # which takes all that the other half does
        self.function = caller.requests.functions[made.names[mode]]
        self.b = Builder(op.span)
        self.after: list[Callable[[], None]] = []
        self.results: list[Value] = []
        self.missing: Value | None = None  # whether the tape found no room

    def ops(self) -> list[Op]:
        op, b, primal = self.op, self.b, self.caller.requests.functions[self.op.fn]
        shadows, activity = iter(op.shadows), op.activity.split(",")
        given: dict[str, Value] = {}
        for param, how, value in zip(primal.params, activity, op.args, strict=True):
            given[param.name] = value
            shadow = next(shadows) if how == "dup" and op.shadows else None
            adjoint = self.made.listed.get(param.name)
            if adjoint is not None and op.mode != "augmented":
                given[adjoint.name] = self.adjoint(param, adjoint, how, shadow)
        if primal.result_type is not None:
            given[RESULT] = b.alloca(primal.result_type, "value")
            adjoint = self.made.listed.get(RESULT)
            if adjoint is not None and op.mode != "augmented":
                given[adjoint.name] = self.of_value(adjoint)
        if op.mode in ("augmented", "backward"):
            given |= self.tape()
        if self.made.stacks:
            self.in_two(given)
        elif self.missing is not None:
            self.unless_missing(given)
        else:
            self.call(self.function, given)
        for step in self.after:
            step()
        self.caller.replaced.update(zip(op.results, self.results, strict=False))
        return b.ops

    def call(self, function: Function, given: dict[str, Value]) -> None:
        arguments = tuple(self.fitted(given[p.name], p.type) for p in function.params)
        self.b.effect(Call, function.name, arguments)

    def in_two(self, given: dict[str, Value]) -> None:
        """Forward, and if all that it keeps found room, backward."""
        b, forward = self.b, self.caller.requests.functions[self.made.names["augmented"]]
        given |= self.caller.for_stacks(self.op, self.made, (*forward.params, *self.function.params))
        given["_fits"] = fits = b.alloca(BOOL, "fits")
        self.call(forward, given)
        self.leave(b.apply("not", b.load(fits)))
        self.call(self.function, given)

    def fitted(self, value: Value, type: Type) -> Value:
        return self.b.cast_pointer(value, type) if isinstance(type, Pointer) else value

    def adjoint(self, param: Param, adjoint: Param, how: str, shadow: Value | None) -> Value:
        """Where the derived function finds the adjoint or tangent of a parameter."""
        if isinstance(param.type, Pointer):
            assert shadow is not None
            self.check(param, adjoint, shadow)
            return shadow
        b, type = self.b, pointee(adjoint.value)
        own = b.alloca(type, f"d_{param.name}")
        if self.op.mode == "forward":
            b.store(own, shadow if shadow is not None else b.constant(1.0, type))
            return own
        b.store(own, b.constant(0.0, type))
        if how == "out":
            self.after.append(lambda: self.results.append(b.convert(b.load(own), param.type)))
        else:
            assert shadow is not None
            self.after.append(lambda: self.add(shadow, own))
        return own

    def add(self, shadow: Value, own: Value) -> None:
        """To the adjoint of a number: others may add to it too."""
        self.b.atomic("add", shadow, self.b.convert(self.b.load(own), pointee(shadow)))

    def check(self, param: Param, adjoint: Param, shadow: Value) -> None:
        if isinstance(adjoint.type, Pointer) and pointee(shadow) != adjoint.type.pointee:
            problem = f"the shadow of '{param.called}' must lead to {adjoint.type.pointee}, not to {pointee(shadow)}"
            raise UnsupportedError(problem, self.op.span)

    def of_value(self, adjoint: Param) -> Value:
        """The adjoint of the function's value, or where its tangent goes."""
        b, type = self.b, pointee(adjoint.value)
        own = b.alloca(type, "d_value")
        if self.op.mode == "forward":
            b.store(own, b.constant(0.0, type))
            self.after.append(lambda: self.results.append(b.load(own)))
        else:
            has_seed = self.op.mode == "backward" and len(self.op.given) > 1
            b.store(own, b.convert(self.op.given[0], type) if has_seed else b.constant(1.0, type))
        return own

    # ---- tapes

    def tape(self) -> dict[str, Value]:
        """Where the frame is, and how large it may be and is."""
        op, b = self.op, self.b
        held = op.results[0].type if op.mode == "augmented" else op.given[-1].type
        if isinstance(held, Pointer):
            return self.made_tape() if op.mode == "augmented" else self.used_tape()
        room = min(held.size, op.tape_bytes)
        if self.made.grows:
            problem = f"the tape of '{op.fn}' has values of every iteration of a loop, and no constant size"
            raise UnsupportedError(problem, op.span, "leave enzyme_allocated out, and let the tape be a void *")
        if self.made.frame > room:
            problem = f"the tape of '{op.fn}' needs {self.made.frame} bytes, and has {room}"
            raise UnsupportedError(problem, op.span, "give it a larger type, and its sizeof to enzyme_allocated")
        own = b.alloca(held, "tape")
        if op.mode == "augmented":
            self.after.append(lambda: self.results.append(b.load(own)))
        else:
            b.store(own, op.given[-1])
        return {"_tape": b.cast_pointer(own, Pointer(U8))}

    def made_tape(self) -> dict[str, Value]:
        """In memory of the launch: of a constant size, if each thread makes it once, else in its part of the arena."""
        if self.made.grows or self.in_loop:
            return self.tape_in_arena()
        b, nbytes = self.b, _whole(self.made.frame + WORD)
        memory = b.cast_pointer(self.caller.tape_memory(self.op, nbytes), Pointer(U8))
        start = b.apply("mul", _thread(b), b.constant(nbytes, I64))
        tape = b.offset(memory, b.apply("add", start, b.constant(HEADER, I64)))
        self.count(memory, tape)
        self.results.append(tape)
        return {"_tape": b.offset(tape, b.constant(WORD, I64))}

    def count(self, memory: Value, tape: Value) -> None:
        """As not used yet."""
        b, unused = self.b, self.b.cast_pointer(memory, Pointer(I64))
        b.store(b.cast_pointer(tape, Pointer(Pointer(I64))), unused)
        b.atomic("add", unused, b.constant(1, I64))

    def tape_in_arena(self) -> dict[str, Value]:
        """Behind the tapes that the thread has made before. If there is no room, the frame's values are lost, and the
        launch will be made again."""
        b = self.b
        memory, room = self.caller.arena(self.op)
        arena = b.cast_pointer(memory, Pointer(U8))
        part = b.offset(arena, b.apply("add", b.apply("mul", _thread(b), room), b.constant(HEADER, I64)))
        used = b.load(b.cast_pointer(part, Pointer(I64)))
        tape = b.offset(part, b.apply("add", used, b.constant(PART, I64)))
        frame = b.offset(tape, b.constant(WORD, I64))
        free = b.apply("sub", b.apply("sub", room, used), b.constant(PART + WORD, I64))
        size = b.alloca(I64, "size")
        b.store(size, b.constant(self.made.frame, I64))
        self.after.append(lambda: self.results.append(self.kept(arena, room, part, used, tape, b.load(size))))
        if self.made.grows:
            return {"_tape": frame, "_room": free, "_size": size}
        spare = b.decay(b.alloca(Array(U8, max(1, self.made.frame)), "spare"))
        fits = b.apply("le", b.constant(self.made.frame, I64), free)
        return {"_tape": self.either(fits, frame, b.cast_pointer(spare, Pointer(U8)))}

    def kept(self, arena: Value, room: Value, part: Value, used: Value, tape: Value, size: Value) -> Value:
        """The tape, counted, or what stands for one that found no room."""
        b = self.b
        taken = b.apply("div", b.apply("add", size, b.constant(WORD + 15, I64)), b.constant(16, I64))
        total = b.apply("add", used, b.apply("mul", taken, b.constant(16, I64)))
        b.store(b.cast_pointer(part, Pointer(I64)), total)
        needed = b.apply("add", total, b.constant(PART, I64))
        b.atomic("max", b.cast_pointer(b.offset(arena, b.constant(NEEDED, I64)), Pointer(I64)), needed)
        fits = b.apply("le", needed, room)
        with b.region() as region:
            self.count(arena, tape)
        b.if_(fits, region.block())
        return self.either(fits, tape, b.offset(arena, b.constant(_MISSING, I64)))

    def either(self, condition: Value, one: Value, other: Value) -> Value:
        with self.b.region() as first:
            pass
        with self.b.region() as second:
            pass
        (found,) = self.b.if_(condition, first.block((), (one,)), second.block((), (other,)))
        return found

    def used_tape(self) -> dict[str, Value]:
        b, tape = self.b, self.b.cast_pointer(self.op.given[-1], Pointer(U8))
        self.missing = b.apply("eq", b.load(b.cast_pointer(tape, Pointer(I64))), b.constant(0, I64))
        given = {"_tape": b.offset(tape, b.constant(WORD, I64))}
        if self.made.grows:
            given |= {"_room": b.constant(0, I64), "_size": b.alloca(I64, "size")}
        return given

    def unless_missing(self, given: dict[str, Value]) -> None:
        """The reverse, and the tape is counted off."""
        assert self.missing is not None
        self.leave(self.missing)
        self.call(self.function, given)
        self.count_off(self.b.cast_pointer(self.op.given[-1], Pointer(U8)))

    def leave(self, lacks: Value) -> None:
        """Without a value to go on with, once others can see that memory was lacking."""
        with self.b.region() as region:
            self.b.effect(Fence, "device")
        self.b.if_(lacks, region.block())
        leave(self.b, lacks)
        self.caller.marks.add(lacks)

    def count_off(self, tape: Value) -> None:
        """As used, the first time: the lowest bit of its word says that it was."""
        b, unused = self.b, self.b.load(self.b.cast_pointer(tape, Pointer(Pointer(I64))))
        word = b.atomic("or", b.cast_pointer(tape, Pointer(I64)), b.constant(1, I64))
        with b.region() as region:
            b.atomic("add", unused, b.constant(-1, I64))
        b.if_(b.apply("eq", b.apply("and", word, b.constant(1, I64)), b.constant(0, I64)), region.block())


def _thread(b: Builder) -> Value:
    """Its number in the grid."""
    return b.apply("add", b.apply("mul", linear_block(b), _threads(b)), linear_thread(b))


def _whole(nbytes: int) -> int:
    return -(-nbytes // 16) * 16


def _threads(b: Builder) -> Value:
    x, y, z = (b.convert(b.builtin("block_dim", axis), I64) for axis in range(3))
    return b.apply("mul", b.apply("mul", x, y), z)
