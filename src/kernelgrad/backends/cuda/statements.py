"""IR blocks as C++ statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import UNKNOWN, InternalError, Source, Span
from ...ir.ops import (
    Alloca,
    Apply,
    Assert,
    Atomic,
    Barrier,
    Block,
    Constant,
    Fence,
    For,
    HostCall,
    If,
    Insert,
    Leave,
    Op,
    Print,
    Store,
    Trap,
    Undef,
    Value,
    Warp,
    While,
)
from ...ir.types import BOOL, I32, U32, Array, Pointer, Struct, Type
from .atomics import atomic, atomics
from .comments import Line, is_one_if
from .conversions import literal
from .expressions import Expressions, host_call
from .names import Scope, is_own
from .syntax import Expr, Prec, assigned, assignment, call, either, infix, negated
from .types import Types, field_name
from .variables import Copy, Save, Variable, in_sequence

if TYPE_CHECKING:
    from .neighbours import Neighbours
    from .sincos import Pair


_FENCES = {"block": "__threadfence_block();", "device": "__threadfence();", "system": "__threadfence_system();"}
_FULL_MASK = 0xFFFFFFFF
_ONE_LINE = 110  # how long a line may be that has a condition and what depends on it
_LONGEST_CHOICE = 90
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\a": "\\a"}


class Statements:
    """Writes lines. `self.expressions` spells values; declarations take their names from the scope they stand in.
    `returns`: who leaves has nothing to do any more, and does not wait for its neighbours at the end of loops."""

    def __init__(self, expressions: Expressions, scope: Scope, source: Source, returns: bool = False):
        self.expressions, self.scope, self.source, self.returns = expressions, scope, source, returns
        self.folding, self.variables = expressions.folding, expressions.variables
        self.types: Types = expressions.types
        self.lines: list[Line] = []
        self.depth = 1
        self.span: Span = UNKNOWN  # of the statement that is being written
        self.why = ""  # it updates an adjoint as it does
        self.declared: set[Variable] = set()

    # ---- lines

    def line(self, text: str, is_effect: bool = True, closes: bool = False) -> None:
        self.lines.append(Line(text, self.depth, self.span, is_effect, self.why, closes))

    @contextmanager
    def nested(self, head: str, tail: str = "}") -> Iterator[None]:
        self.line(head)
        outer, self.scope = self.scope, Scope(self.scope)
        self.depth += 1
        yield
        self.depth -= 1
        self.scope = outer
        self.line(tail, closes=True)

    def comment_place(self, op: Op) -> None:
        """Loops say where they stand in the source; other statements follow from them."""
        if op.span.line and op.span.source.name == self.source.name and not op.span.reverse:
            self.line(f"// {self.source.short_name}:{op.span.line}", is_effect=False)

    # ---- blocks

    def block(self, block: Block, tail: bool = False) -> None:
        """`tail`: nothing follows the block in the kernel, so that leaving it may be a `return`."""
        written = [op for op in block.ops if self.folding.is_written(op) or isinstance(op, Alloca)]
        for op in written:
            self.statement(op, tail and op is written[-1])

    def statement(self, op: Op, tail: bool) -> None:
        outer = self.span, self.why
        self.span = UNKNOWN if isinstance(op, Barrier) else op.span
        self.why = op.span.why if isinstance(op, Store | Atomic | If) and op.span.reverse else ""
        self.written(op, tail)
        self.span, self.why = outer

    def written(self, op: Op, tail: bool) -> None:
        if isinstance(op, For | While):
            self.comment_place(op)
        if isinstance(op, If) and self.choice(op):
            return
        for variable in self.variables.bare.get(op, ()):
            self.declare(variable, self.preset(op, variable))
        match op:
            case If():
                self.if_(op, tail)
            case For():
                self.for_(op)
            case While():
                self.while_(op)
            case Alloca():
                self.alloca(op)
            case Leave():  # else the conditions around it are all the device needs
                if self.returns:
                    self.line("return;")
            case Store(ptr, value, volatile):
                target = self.expressions.target(ptr, volatile)
                self.line(assignment(target.text, assigned(self.expressions.nonconst(value))))
            case Insert():
                self.insert(op)
            case Apply() if op in self.folding.paired:
                self.sine_and_cosine(op, self.folding.paired[op])
            case Atomic() if op in self.folding.vectors:
                self.add_together(op, self.folding.vectors[op])
            case Atomic():
                self.write(op, op.result, atomic(op, self.expressions))
            case Warp(fn="match_all"):
                self.match_all(op)
            case _ if len(op.results) == 1:
                self.write(op, op.result, self.expressions.operation(op))
            case _:
                self.line(self.effect(op))

    def effect(self, op: Op) -> str:
        match op:
            case Barrier("block"):
                return "__syncthreads();"
            case Barrier(_, args):
                return f"__syncwarp({', '.join(self.mask(a) for a in args)});"
            case Fence(scope):
                return _FENCES[scope]
            case Print(text, args):
                arguments = "".join(f", {self.expressions.value(a).text}" for a in args)
                return f"printf({quoted(text)}{arguments});"
            case Assert(cond, message):
                condition = self.expressions.value(cond)
                # The macro prints its argument: the source's words belong in it, once.
                says_it = message.replace(" ", "") in ("", condition.text.replace(" ", ""))
                told = "" if says_it else f" && {quoted(message)}"
                return f"assert({condition.at(Prec.LOGICAL_AND) if told else condition.text}{told});"
            case Trap():
                return "__trap();"
            case HostCall(fn, args):
                return f"{host_call(fn, [self.expressions.value(a).text for a in args])};"
            case _:
                raise InternalError(f"{type(op).__name__} has no CUDA spelling ({op.span})")

    def mask(self, value: Value) -> str:
        op = self.folding.definition.get(value)
        full = isinstance(op, Constant) and int(op.value) & _FULL_MASK == _FULL_MASK
        return "" if full else self.expressions.value(value).text

    def sine_and_cosine(self, op: Apply, pair: Pair) -> None:
        variable = self.variables.of[op.result]
        if variable.opener is op and variable not in self.declared and not variable.bare:
            self.declare(variable, None)
        if op is pair.second:
            results = [self.variables.of[part.result] for part in (pair.sine, pair.cosine)]
            argument = self.expressions.value(op.args[0]).text
            text = f"{pair.function}({argument}, {', '.join(f'&{v.name}' for v in results)});"
            self.line(text, is_effect=False)

    def add_together(self, op: Atomic, group: Neighbours) -> None:
        if op is group.last:
            self.line(f"{atomics(group, self.expressions).text};")

    # ---- variables

    def declare(self, variable: Variable, value: Expr | None) -> None:
        variable.name = self.scope.declare(variable.hint, variable.own)
        self.declared.add(variable)
        declaration = self.declaration(variable.type, variable.name, variable.const)
        text = f"{declaration};" if value is None else f"{declaration} = {assigned(value).text};"
        self.line(text, is_effect=bool(self.why))

    def write(self, op: Op, result: Value, value: Expr) -> None:
        variable = self.variables.of.get(result)
        if variable is None:
            self.line(f"{value.text};")
        else:
            self.assign(variable, value, op)

    def assign(self, variable: Variable, value: Expr, op: Op | None) -> None:
        if variable.opener is op and variable not in self.declared and not variable.bare and op is not None:
            self.declare(variable, value)
        else:
            self.line(assignment(variable.name, assigned(value)))

    def alloca(self, op: Alloca) -> None:
        if not self.folding.is_used(op.result):
            return
        assert isinstance(op.result.type, Pointer)
        name = self.scope.declare(op.result.name or "local", is_own(op.result.name))
        self.expressions.places[op.result] = name
        self.line(f"{self.types.declare(op.result.type.pointee, name)};", is_effect=False)

    def insert(self, op: Insert) -> None:
        whole = op.result
        variable = self.variables.of[whole]
        value = self.expressions.nonconst(op.value)
        if self.variables.of.get(op.aggregate) is not variable or op.aggregate in self.folding.inline:
            if variable in self.reads(op.value):
                value = self.temporary("part", value)
            self.assign(variable, self.expressions.value(op.aggregate), op)
        self.line(f"{self.part_target(variable, op.index)} = {assigned(value).text};")

    def part_target(self, variable: Variable, index: int) -> str:
        if not isinstance(variable.type, Struct):
            return f"{variable.name}.at[{index}]"
        text = f"{variable.name}.{field_name(variable.type, index)}"
        field = variable.type.fields[index]
        if not isinstance(field.type, Array):
            return text
        return f"reinterpret_cast<{self.types.spell(field.type)} &>({text})"

    def temporary(self, hint: str, value: Expr, const: bool = False) -> Expr:
        name = self.scope.declare(hint, own=True)
        self.line(f"{self.declaration(value.type, name, const)} = {value.text};", is_effect=False)
        return Expr(name, value.type)

    def declaration(self, type: Type, name: str, const: bool) -> str:
        if isinstance(type, Array):
            return f"{self.types.spell(type)} {name}"
        return self.types.declare(type, name, const)

    def match_all(self, op: Warp) -> None:
        same, every = op.results
        flag = self.scope.declare("all_match", own=True)
        self.line(f"int {flag};")
        arguments = [*self.expressions.values(op.args), Expr(f"&{flag}", Pointer(I32))]
        self.write(op, same, call("__match_all_sync", arguments, U32))
        if every in self.variables.of:
            self.write(op, every, Expr(f"{flag} != 0", BOOL))

    # ---- copies between variables, at the edges of regions

    def reads(self, value: Value) -> frozenset[Variable]:
        leaves = self.folding.leaves(value)
        return frozenset(self.variables.of[v] for v in leaves if v in self.variables.of)

    def copies(self, targets: list[Variable], sources: list[Value], op: Op | None) -> None:
        """All at once in the IR: `a, b = b, a`."""
        moves = []
        for target, source in zip(targets, sources, strict=True):
            if not self.is_in(source, target):
                moves.append(Copy(target, self.expressions.value(source), self.reads(source)))
        for move in in_sequence(moves):
            if isinstance(move, Save):
                copy = move.copy
                copy.value = self.temporary(f"next_{copy.target.hint}", copy.value, copy.target.const)
            else:
                self.assign(move.target, move.value, op)

    def storage(self, *values: Value) -> Variable:
        """The variable of a carried value, known by any of the values that stand for it."""
        return next(self.variables.of[v] for v in values if v in self.variables.of)

    # ---- if

    def if_(self, op: If, tail: bool) -> None:
        condition = self.expressions.value(op.cond)
        while (inner := self.nested_if(op)) is not None and not op.exits:
            condition, op = infix("&&", condition, self.expressions.value(inner.cond), BOOL), inner
        if op.exits and tail and not self.folding.wanted[op.then] and (not op.then.ops or not op.orelse.ops):
            leaves, rest = (negated(condition), op.then) if not op.orelse.ops else (condition, op.orelse)
            self.line(f"if ({leaves.text}) return;")
            self.block(rest, tail)
            return
        then, orelse = self.branch(op, op.then, tail), self.branch(op, op.orelse, tail)
        if not then and not orelse:
            return
        if not then:
            condition, then, orelse = negated(condition), orelse, []
        if not orelse and self.on_one_line(condition, then):
            return
        self.line(f"if ({condition.text}) {{")
        self.lines += then
        if is_one_if(orelse):
            for line in orelse:
                line.depth -= 1
            self.lines.append(replace(orelse[0], text=f"}} else {orelse[0].text}", closes=True))
            self.lines += orelse[1:]
            return
        if orelse:
            self.line("} else {", closes=True)
            self.lines += orelse
        self.line("}", closes=True)

    def on_one_line(self, condition: Expr, then: list[Line]) -> bool:
        """`if (c) statement;`"""
        text = f"if ({condition.text}) {then[0].text}"
        short = len(text) + 4 * self.depth <= _ONE_LINE and then[0].text.endswith(";")
        if len(then) > 1 or not then[0].is_effect or then[0].text.startswith("if (") or not short:
            return False
        self.lines.append(replace(then[0], text=text, depth=self.depth))
        return True

    def nested_if(self, op: If) -> If | None:
        """The `if` that is all another one does: their conditions are tested together."""
        inner = [inside for inside in op.then.ops if self.folding.is_written(inside) or isinstance(inside, Alloca)]
        if len(inner) != 1 or not isinstance(inner[0], If) or op.orelse.ops or self.folding.wanted[op.then]:
            return None
        (found,) = inner
        assert isinstance(found, If)
        plain = not found.orelse.ops and not self.folding.wanted[found.then] and not self.variables.bare.get(found)
        return found if plain else None

    def choice(self, op: If) -> bool:
        """`v = c ? a : b;` or `v = c && a;` where the two sides have nothing else."""
        if len(self.folding.wanted[op.then]) != 1 or any(map(self.has_text, (op.then, op.orelse))):
            return False
        (k,) = self.folding.wanted[op.then]
        variable, sides = self.storage(op.results[k]), (op.then.results[k], op.orelse.results[k])
        if any(self.is_in(side, variable) for side in sides):
            return False
        condition, one, other = self.expressions.value(op.cond), *map(self.expressions.value, sides)
        value = either(condition, one, other, op.results[k].type)
        if len(value.text) > _LONGEST_CHOICE:
            return False
        if variable in self.variables.bare.get(op, ()):
            self.declare(variable, value)
        else:
            self.line(assignment(variable.name, assigned(value)))
        return True

    def branch(self, op: If, block: Block, tail: bool) -> list[Line]:
        """The lines of one side."""
        outer_lines, self.lines = self.lines, []
        outer_scope, self.scope = self.scope, Scope(self.scope)
        self.depth += 1
        self.block(block, tail)
        wanted = [k for k in self.folding.wanted[block] if not self.is_preset(op, block, k)]
        self.copies([self.storage(op.results[k]) for k in wanted], [block.results[k] for k in wanted], None)
        self.depth -= 1
        self.scope = outer_scope
        lines, self.lines = self.lines, outer_lines
        return lines

    def is_preset(self, op: If, block: Block, index: int) -> bool:
        """`float v = 0.0f; if (c) v = x;`: a side that only yields constants gives them before the `if`."""
        source = self.folding.definition.get(block.results[index])
        variable = self.storage(op.results[index])
        new_here = variable in self.variables.bare.get(op, ())
        writes = any(map(self.folding.is_written, block.ops))
        return block is op.orelse and not writes and new_here and isinstance(source, Constant | Undef)

    def preset(self, op: Op, variable: Variable) -> Expr | None:
        if not isinstance(op, If):
            return None
        for k in self.folding.wanted[op.orelse]:
            if self.storage(op.results[k]) is variable and self.is_preset(op, op.orelse, k):
                return self.expressions.value(op.orelse.results[k])
        return None

    # ---- loops

    def unroll(self, count: int | None) -> None:
        if count is not None:
            self.line(f"#pragma unroll {count}" if count else "#pragma unroll", is_effect=False)

    def for_(self, op: For) -> None:
        counter, *args = op.body.args
        carried = self.folding.wanted[op.body]
        targets = [self.storage(args[k], op.results[k]) for k in carried]
        self.copies(targets, [op.inits[k] for k in carried], op)
        self.unroll(op.unroll)
        with self.counting(counter, op.lower) as (variable, start):
            upper = self.expressions.value(op.upper)
            condition = self.until(variable, upper, op)
            size = Expr(str(abs(op.step)), I32)
            step = assignment(variable.text, infix("+" if op.step > 0 else "-", variable, size, counter.type))
            with self.nested(f"for ({start}; {condition.text}; {step.rstrip(';')}) {{"):
                self.block(op.body)
                self.copies(targets, [op.body.results[k] for k in carried], None)

    def until(self, counter: Expr, upper: Expr, op: For) -> Expr:
        """`k >= 0` rather than `k > -1`."""
        bound = self.folding.definition.get(op.upper)
        if op.step < 0 and isinstance(bound, Constant) and op.upper in self.folding.inline and int(bound.value) < 0:
            last = literal(int(bound.value) + 1, op.upper.type, self.types)
            return self.expressions.binary(">=", counter, last, BOOL)
        return self.expressions.binary("<" if op.step > 0 else ">", counter, upper, BOOL)

    @contextmanager
    def counting(self, counter: Value, first: Value) -> Iterator[tuple[Expr, str]]:
        """The counter of a `for`, in a scope around the body's, and its declaration."""
        outer, self.scope = self.scope, Scope(self.scope)
        start = assigned(self.expressions.value(first)).text
        name = self.scope.declare(counter.name or "i", is_own(counter.name))
        if counter in self.variables.of:
            self.variables.of[counter].name = name
        yield Expr(name, counter.type), f"{self.types.declare(counter.type, name)} = {start}"
        self.scope = outer

    def while_(self, op: While) -> None:
        carried = [k for k in self.folding.wanted[op.body] if k != self.folding.stepped.get(op)]
        states = [self.storage(op.before.args[k]) for k in carried]
        self.copies(states, [op.inits[k] for k in carried], op)
        self.unroll(op.unroll)
        forwarded = self.folding.wanted[op.before][1:]
        targets = [self.storage(op.body.args[k - 1], op.results[k - 1]) for k in forwarded]
        sources = [op.before.results[k] for k in forwarded]
        plain = not self.has_text(op.before) and all(map(self.is_in, sources, targets))
        if op in self.folding.stepped:
            assert plain, "the header of a `for` has no place for copies"
            self.stepped(op, states, carried)
            return
        condition = self.expressions.value(op.before.results[0])
        with self.nested(f"while ({condition.text if plain else 'true'}) {{"):
            if not plain:
                self.before(op, targets, sources)
            self.block(op.body)
            self.copies(states, [op.body.results[k] for k in carried], None)

    def stepped(self, op: While, states: list[Variable], carried: list[int]) -> None:
        """A `while` whose last statement steps the variable that it tests, as a `for`."""
        k = self.folding.stepped[op]
        with self.counting(op.before.args[k], op.inits[k]) as (variable, start):
            condition = self.expressions.value(op.before.results[0])
            step = assignment(variable.text, assigned(self.expressions.value(op.body.results[k])))
            with self.nested(f"for ({start}; {condition.text}; {step.rstrip(';')}) {{"):
                self.block(op.body)
                self.copies(states, [op.body.results[j] for j in carried], None)

    def has_text(self, block: Block) -> bool:
        return any(self.folding.is_written(op) or isinstance(op, Alloca) for op in block.ops)

    def is_in(self, value: Value, variable: Variable) -> bool:
        return value not in self.folding.inline and self.variables.of[value] is variable

    def before(self, op: While, targets: list[Variable], sources: list[Value]) -> None:
        self.block(op.before)
        condition = op.before.results[0]
        clobbered = not self.reads(condition).isdisjoint(targets)
        text = self.expressions.value(condition)
        if clobbered:
            text = self.temporary("go_on", text)
        self.copies(targets, sources, None)
        self.line(f"if ({negated(text).text}) break;")


def quoted(text: str) -> str:
    """A C++ string literal."""
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'
