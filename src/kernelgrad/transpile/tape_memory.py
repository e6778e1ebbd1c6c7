"""Memory for tapes behind pointers (`void *tape = __enzyme_augmentfwd(...)`): a parameter that kernels get besides, and
that visible launches pass on.

A launch has a part for each thread, and each request a place in it, so that it is executed once by a thread. Device
functions that ask get the places of their callers. What nobody can see being launched cannot be given memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import Span, UnsupportedError
from ..frontend import clang
from ..frontend.clang import Cursor, Kind
from ..frontend.in_source import extent
from ..frontend.text import tokens
from ..frontend.unit import Unit, declarations
from ..frontend.visiting import children_of, walk
from .call_text import LaunchText, argument_ranges, is_default, launch_text, start
from .edits import Edits
from .instances import template_of
from .tape_texts import tape_text
from .undone_launches import check_undone

HEAD = 16  # bytes before each frame: where the tapes that are not used yet are counted
TYPE = "kg::Tapes"
_LOOPS = (Kind.FOR_STMT, Kind.WHILE_STMT, Kind.DO_STMT, Kind.CXX_FOR_RANGE_STMT, Kind.LAMBDA_EXPR)
_MEMBERS = (Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.CONVERSION_FUNCTION)


@dataclass
class _Function:
    """`own`: bytes of its own requests. `calls`: of functions that need memory, where their part begins."""

    definition: Cursor
    own: int = 0
    grows: bool = False  # some of its tapes are in the arena
    calls: dict[int, int] = field(default_factory=dict)  # by the byte where the call begins
    total: int | None = None


class TapeMemory:
    """Of all functions of one program. `name`: of the parameter."""

    def __init__(self, unit: Unit, edits: Edits, name: str):
        self.unit, self.edits, self.name = unit, edits, name
        self._of: dict[int, _Function] = {}  # by the byte where the definition begins

    def place(self, function: Cursor, request: Cursor, nbytes: int) -> str:
        """The tape of a request, in the text. `nbytes`: of its place, or none if it goes into the arena."""
        if template_of(function) is not None or function.kind != Kind.FUNCTION_DECL:
            problem = "a tape behind a pointer, of a template or a method, cannot be transpiled"
            raise UnsupportedError(problem, self.unit.span(request), "use enzyme_allocated, with its sizeof")
        found = self._of.setdefault(start(function), _Function(function))
        found.grows = found.grows or not nbytes
        offset, found.own = found.own, found.own + nbytes
        return f"{self.name}.make({offset if nbytes else ''})"

    @property
    def is_used(self) -> bool:
        return bool(self._of)

    def passes_on(self, function: Cursor) -> bool:
        """Whether it gets memory for tapes."""
        return start(function) in self._of

    def text(self) -> str:
        return tape_text(any(f.grows for f in self._of.values()))

    # ---- the program around the requests

    def thread(self, functions: list[Cursor]) -> int:
        """Gives the parameter to all that need it. The byte before which its type must be known."""
        uses = [use for f in functions for use in uses_in(f)]
        self._find_callers(uses)
        for use in uses:
            needed = self._of.get(use.target)
            if needed is not None:
                self._pass(use, needed)
        declared = [d for d in _declarations(self.unit) if start(d) in self._of or _defined(d) in self._of]
        for declaration in declared:
            self._declare(declaration)
        self._check_launched(uses)
        return min(extent(d).start for d in declared)

    def _find_callers(self, uses: list[Use]) -> None:
        size = -1
        while size != len(self._of):
            size = len(self._of)
            for use in uses:
                if use.target in self._of and not use.is_launch and use.call is not None:
                    self._check_caller(use)
                    self._of.setdefault(start(use.function), _Function(use.function))
        for _ in self._of:
            for use in uses:
                if use.target in self._of and not use.is_launch and use.call is not None:
                    caller = self._of[start(use.function)]
                    caller.grows = caller.grows or self._of[use.target].grows

    def _check_caller(self, use: Use) -> None:
        if use.function.kind != Kind.FUNCTION_DECL or template_of(use.function) is not None:
            problem = "a tape behind a pointer that a template or a method passes on cannot be transpiled"
            raise UnsupportedError(problem, self.unit.span(use.at), "use enzyme_allocated, with its sizeof")

    def _total(self, at: int) -> int:
        """Bytes of a thread's part; its own requests come first, then what it calls."""
        found = self._of[at]
        if found.total is None:
            found.total = found.own
            for use in uses_in(found.definition):
                if use.target in self._of and not use.is_launch and use.call is not None:
                    found.calls[extent(use.call).start] = found.total
                    found.total += self._total(use.target)
        return found.total

    def _pass(self, use: Use, needed: _Function) -> None:
        name, span = needed.definition.spelling, self.unit.span(use.at)
        if use.call is None:
            problem = (
                f"'{name}' keeps tapes, for which launches pass memory on: what is launched by this is not visible"
            )
            raise UnsupportedError(problem, span, f"launch it as {name}<<<...>>>(...), or use enzyme_allocated")
        if use.is_launch:
            total = self._total(use.target)
            if needed.grows:
                self._launch_again(use.call, needed.definition, total, span)
            else:
                self._launch(use.call, total, span)
            return
        if in_loop(use.function, use.call) and self._total(use.target):
            problem = f"'{name}' makes a tape behind a pointer, which a thread does once, and this is in a loop"
            raise UnsupportedError(problem, span, "use enzyme_allocated, with a place for each iteration")
        self._total(start(use.function))
        offset = self._of[start(use.function)].calls[extent(use.call).start]
        self._first(use.call, f"{self.name}.at({offset})" if offset else self.name)

    def _launch(self, call: Cursor, nbytes: int, span: Span) -> None:
        how = [c for c in children_of(call)[1].get_arguments() if not is_default(c)]
        parts = launch_parts(self.unit, self.edits, call)
        texts = [self.edits.slice(*part) for part in parts.configuration]
        if all(map(_is_simple, how)):
            stream = texts[3] if len(texts) > 3 else "nullptr"
            made = f"kg::tapes_for({texts[0]}, {texts[1]}, {stream}, {nbytes})"
            at = parts.arguments[0][0] if parts.arguments else extent(call).end - 1
            self._insert(at, f"{made}, " if parts.arguments else made, span)
            return
        at = extent(call).start
        params = "dim3 kg_grid, dim3 kg_block, size_t kg_shared, cudaStream_t kg_stream"
        given = [self.edits.slice(*part) for part in parts.arguments]
        args = ", ".join([f"kg::tapes_for(kg_grid, kg_block, kg_stream, {nbytes})", *given])
        texts += ["0", "nullptr"][len(texts) - 2 :]
        launch = f"{self.edits.slice(*parts.kernel)}<<<kg_grid, kg_block, kg_shared, kg_stream>>>({args})"
        self._replace(at, extent(call).end, f"[&]({params}) {{ {launch}; }}({', '.join(texts)})", span)

    def _launch_again(self, call: Cursor, kernel: Cursor, nbytes: int, span: Span) -> None:
        """By what finds room for all tapes."""
        check_undone(self.unit, kernel, call)
        parts = launch_parts(self.unit, self.edits, call)
        how = [self.edits.slice(*part) for part in parts.configuration]
        how += ["0", "nullptr"][len(how) - 2 :]
        given = [self.edits.slice(*part) for part in parts.arguments]
        args = ", ".join([self.edits.slice(*parts.kernel), *how, str(nbytes), *given])
        self._replace(extent(call).start, extent(call).end, f"kg::launch_with_tapes({args})", span)

    def _first(self, call: Cursor, text: str) -> None:
        """Puts an argument before the others."""
        at = extent(call)
        ranges, span = argument_ranges(self.edits.data, at.start, at.end), self.unit.span(call)
        if ranges is None:
            problem = "a call that a macro makes must pass a tape on: cannot be transpiled"
            raise UnsupportedError(problem, span, "write the call where the macro is used")
        self._insert(ranges[0][0] if ranges else at.end - 1, f"{text}, " if ranges else text, span)

    def _declare(self, declaration: Cursor) -> None:
        span = self.unit.span(declaration)
        params = [c for c in children_of(declaration) if c.kind == Kind.PARM_DECL]
        if params:
            self._insert(extent(params[0]).start, f"{TYPE} {self.name}, ", span)
            return
        at = extent(declaration)
        named = self.edits.data.index(declaration.spelling.encode(), at.start)
        opening = next(
            t for t in tokens(self.edits.data[named : at.end]) if self.edits.data[named + t.start] == ord("(")
        )
        after = self.edits.data.index(b")", named + opening.start)
        self._replace(named + opening.start + 1, after, f"{TYPE} {self.name}", span)

    def _insert(self, at: int, text: str, span: Span) -> None:
        if self.edits.covers(at):
            raise UnsupportedError("a tape must be passed on inside of a request: cannot be transpiled yet", span)
        self.edits.insert(at, text)

    def _replace(self, start: int, end: int, text: str, span: Span) -> None:
        if self.edits.covers(start):
            raise UnsupportedError("a tape must be passed on inside of a request: cannot be transpiled yet", span)
        self.edits.replace(start, end, text)

    def _check_launched(self, uses: list[Use]) -> None:
        launched = {use.target for use in uses if use.is_launch}
        for at, found in self._of.items():
            if self.unit.function_kind(found.definition) == "kernel" and at not in launched:
                name = found.definition.spelling
                problem = f"'{name}' keeps tapes, for which its launches pass memory on: none of them is visible here"
                hint = "launch it in this file, or use enzyme_allocated"
                raise UnsupportedError(problem, self.unit.span(found.definition), hint)


@dataclass(frozen=True)
class Use:
    """A function that is named in another: in a call or a launch of it, or else otherwise."""

    function: Cursor
    target: int
    at: Cursor
    call: Cursor | None
    is_launch: bool


def uses_in(function: Cursor) -> Iterator[Use]:
    """Methods, constructors and operators are found by their calls, which have no other form."""
    for cursor, call in _with_calls(function, None):
        target = cursor.referenced if cursor.kind in (Kind.DECL_REF_EXPR, Kind.CALL_EXPR) else None
        if target is not None and target.kind in _MEMBERS and cursor.kind == Kind.CALL_EXPR:
            yield Use(function, _defined(target), cursor, cursor, False)
            continue
        if cursor.kind == Kind.CALL_EXPR:
            continue
        if target is not None and target.kind == Kind.FUNCTION_DECL:
            is_launch = call is not None and clang.statement_class(call) == clang.KERNEL_CALL
            yield Use(function, _defined(target), cursor, call, is_launch)


def _with_calls(cursor: Cursor, call: Cursor | None) -> Iterator[tuple[Cursor, Cursor | None]]:
    """All that is below, with the call of which it is the callee."""
    for k, child in enumerate(children_of(cursor)):
        through = cursor.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR)
        of = cursor if cursor.kind == Kind.CALL_EXPR and k == 0 else call if through else None
        yield child, of
        yield from _with_calls(child, of)


def _declarations(unit: Unit) -> Iterator[Cursor]:
    """Of functions, with and without a body."""
    kinds = (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE)
    return (f for f in declarations(unit.tree.cursor) if f.kind in kinds and extent(f).file == unit.name)


def _defined(function: Cursor) -> int:
    definition = function.get_definition()
    return start(definition if definition is not None else function)


def in_loop(function: Cursor, request: Cursor) -> bool:
    at = extent(request)
    around: Callable[[Cursor], bool] = lambda c: extent(c).start <= at.start and at.end <= extent(c).end  # noqa: E731
    return any(c.kind in _LOOPS and around(c) for c in walk(function))


def launch_parts(unit: Unit, edits: Edits, launch: Cursor) -> LaunchText:
    """The parts of a launch that stands in the text, and not in a macro."""
    at = extent(launch)
    found = launch_text(edits.data, at.start, at.end) if at.file == unit.name else None
    how = [c for c in children_of(launch)[1].get_arguments() if not is_default(c)]
    if found is None or len(found.configuration) != len(how):
        problem = "a launch that a macro makes must pass memory for tapes on: it cannot be transpiled"
        raise UnsupportedError(problem, unit.span(launch), "write the launch where the macro is used")
    return found


def _is_simple(c: Cursor) -> bool:
    """Whether it may be computed twice."""
    for node in (c, *walk(c)):
        if node.kind == Kind.CALL_EXPR and clang.statement_class(node) not in clang.CONSTRUCT_EXPRS:
            return False
        changes = node.kind == Kind.UNARY_OPERATOR and clang.unary_operator(node) in ("++", "--")
        sets = node.kind == Kind.BINARY_OPERATOR and clang.binary_operator(node) == "="
        if changes or sets or node.kind in (Kind.COMPOUND_ASSIGNMENT_OPERATOR, Kind.LAMBDA_EXPR):
            return False
    return True
