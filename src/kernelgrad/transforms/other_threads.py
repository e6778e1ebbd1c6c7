"""What another thread of the block computes, computed by this one: copies of operations, with that thread's indices and
the counters of its loops in place of this one's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..ir.builder import Builder
from ..ir.effects import is_pure
from ..ir.ops import Apply, Block, Builtin, Constant, If, Load, Op, Value
from ..ir.traverse import operands, rebuild
from ..ir.types import I32, U32, Scalar

_OF_BLOCKS = ("block_idx", "block_dim", "grid_dim", "warp_size")


class NotACopy(Exception):
    """This thread cannot compute it."""


@dataclass(frozen=True)
class OtherThread:
    """`own`: what is known of it, and what was computed so far. `read_only`: of addresses, whether what is there stays
    as it is while the kernel runs."""

    build: Builder
    definition: Mapping[Value, Op]
    parameters: frozenset[Value]
    read_only: Callable[[Value], bool]
    own: dict[Value, Value]

    def inside(self) -> OtherThread:
        """For a region: what is computed there stays there."""
        return replace(self, own=dict(self.own))

    def tested(self, value: Value) -> Value:
        """A value that is computed whether that thread comes to it or not: it loads nothing, and divides by numbers."""
        return self._of(value, anyway=True)

    def computed(self, value: Value) -> Value:
        """A value that is computed only where that thread computes it."""
        return self._of(value, anyway=False)

    def _of(self, value: Value, anyway: bool) -> Value:
        if value not in self.own:
            self.own[value] = self._copy(value, anyway)
        return self.own[value]

    def _copy(self, value: Value, anyway: bool) -> Value:
        op = self.definition.get(value)
        match op:
            case None if value in self.parameters:
                return value
            case Builtin(name) if name not in _OF_BLOCKS:
                raise NotACopy
            case If():
                return self._chosen(op, value, anyway)
            case Load(ptr, volatile=False) if not anyway and self.read_only(ptr):
                pass
            case Apply("div" | "rem", (_, by)) if anyway and not self._is_number(by):
                raise NotACopy
            case None:  # of another iteration
                raise NotACopy
            case _ if not is_pure(op):
                raise NotACopy
        args = {arg: self._of(arg, anyway) for arg in operands(op)}
        if isinstance(op, Apply) and op.fn in ("add", "sub") and value.type == U32:
            return self._signed(op.fn, *(args[arg] for arg in op.args))
        copy = rebuild(op, lambda v: args.get(v, v), lambda block: block)
        return self.build.add(replace(copy, results=(Value(value.type, value.name),))).result

    def _is_number(self, value: Value) -> bool:
        op = self.definition.get(value)
        integer = isinstance(value.type, Scalar) and not value.type.is_float
        return not integer or (isinstance(op, Constant) and op.value not in (0, -1))

    def _signed(self, fn: str, one: Value, other: Value) -> Value:
        """The same bits: a thread left of the block's first one is less than zero, and no large number."""
        build = self.build
        return build.convert(build.apply(fn, build.convert(one, I32), build.convert(other, I32)), U32)

    def _chosen(self, op: If, value: Value, anyway: bool) -> Value:
        cond, number = self._of(op.cond, anyway), op.results.index(value)
        then, orelse = (self._side(side.results[number], anyway) for side in (op.then, op.orelse))
        return self.build.if_(cond, then, orelse)[0]

    def _side(self, value: Value, anyway: bool) -> Block:
        with self.build.region() as region:
            result = self.inside()._of(value, anyway)
        return region.block(results=(result,))
