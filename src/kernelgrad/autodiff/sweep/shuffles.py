"""The adjoints of shuffles: every lane gets back the adjoints of the lanes that read from it.

Where all lanes read at the same distance, each has one reader at most, at that distance the other way. Where all read
from one lane, that lane gets the sum. Otherwise every lane in turn shows its adjoint and whom it read from. Lanes that
do not take part count for nothing: a ballot tells. CUDA leaves open what is read from a lane that the mask does not
name; here it is the reader's own value, as on the CPU, and so it is in the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...analysis.machine import FULL_WARP, WARP
from ...ir.builder import Builder
from ...ir.ops import Value, Warp
from ...ir.types import BOOL, I32, U32
from .adjoints import zero

_BACK = {"shfl_up": "shfl_down", "shfl_down": "shfl_up", "shfl_xor": "shfl_xor"}


@dataclass(frozen=True)
class Shuffle:
    """A shuffle to reverse, with forward values. `uniform`: whether `by` is the same for all lanes; `segment`: the
    width, where it is a constant; `of_all`: whether the mask is known to name all lanes."""

    fn: str
    mask: Value
    by: Value
    width: Value
    uniform: bool
    segment: int | None
    of_all: bool

    def adjoint(self, b: Builder, adjoint: Value) -> Value:
        """What each lane gets back, given the adjoint of what it received."""
        if self.uniform and self.fn in _BACK:
            return self._sent_back(b, adjoint)
        if self.uniform and self.segment in (2, 4, 8, 16, 32):
            return self._gathered(b, adjoint)
        return self._searched(b, adjoint)

    # ---- the ways back

    def _sent_back(self, b: Builder, adjoint: Value) -> Value:
        """A lane whose source lay outside its segment received its own value, and keeps its adjoint."""
        lane, by = _lane(b), self._distance(b)
        _, reads = self._source(b, lane, by)
        readers = self._ballot(b, reads, "readers")
        returned = self._shuffle(b, _BACK[self.fn], adjoint, by)
        nothing = zero(b, adjoint.type)
        back = b.apply("select", self._is_read(b, readers, lane, by), returned, nothing)
        return b.apply("add", b.apply("select", reads, nothing, adjoint), back)

    def _is_read(self, b: Builder, readers: Value, lane: Value, by: Value) -> Value:
        """Whether the lane that would read from this one is among the readers."""
        match self.fn:
            case "shfl_up":
                at_lane = b.apply("shr", b.apply("shr", readers, by), lane)
            case "shfl_down":
                at_lane = b.apply("shr", b.apply("shl", readers, by), lane)
            case _:
                at_lane = b.apply("shr", readers, b.apply("xor", lane, by))
        return _lowest_bit(b, at_lane)

    def _gathered(self, b: Builder, adjoint: Value) -> Value:
        """All lanes of a segment read from one: a sum in steps, which every lane of the warp must take part in."""
        lane = _lane(b)
        source, _ = self._source(b, lane, self._distance(b))
        present = self._ballot(b, b.constant(True, BOOL), "present")
        whole = b.apply("eq", present, b.constant(FULL_WARP, U32))
        assert self.segment is not None
        with b.region() as steps:
            total, distance = adjoint, self.segment // 2
            while distance:
                other = self._shuffle(b, "shfl_xor", total, b.constant(distance, I32))
                total, distance = b.apply("add", total, other), distance // 2
            summed = b.apply("select", b.apply("eq", lane, source), total, zero(b, adjoint.type))
        with b.region() as search:
            found = self._searched(b, adjoint, present)
        return b.if_(whole, steps.block((), (summed,)), search.block((), (found,)))[0]

    def _searched(self, b: Builder, adjoint: Value, present: Value | None = None) -> Value:
        lane, by = _lane(b), self._distance(b)
        present = self._ballot(b, b.constant(True, BOOL), "present") if present is None else present
        asked, received = self._source(b, lane, by)
        source = b.apply("select", received, asked, lane, name="~source")
        alike = self.uniform and self.segment is not None and self.fn == "shfl_idx" and self.of_all
        total = b.alloca(adjoint.type)
        b.store(total, zero(b, adjoint.type))
        s = Value(I32, "~s")
        with b.region() as body:
            shown = self._shuffle(b, "shfl_idx", adjoint, s)
            read_from = self._source(b, s, by)[0] if alike else self._shuffle(b, "shfl_idx", source, s)
            takes_part = _lowest_bit(b, b.apply("shr", present, b.convert(s, U32)))
            counts = b.apply("and", takes_part, b.apply("eq", read_from, lane))
            more = b.apply("add", b.load(total), shown)
            b.store(total, b.apply("select", counts, more, b.load(total)))
        b.for_(b.constant(0, I32), b.constant(WARP, I32), (), 1, body.block((s,)))
        return b.load(total)

    # ---- steps

    def _distance(self, b: Builder) -> Value:
        """The hardware looks at five bits of it; of a lane's number, at those inside the segment."""
        by = b.convert(self.by, I32)
        return by if self.fn == "shfl_idx" else b.apply("and", by, b.constant(WARP - 1, I32))

    def _source(self, b: Builder, lane: Value, by: Value) -> tuple[Value, Value]:
        """The lane that a lane asked for and whether it got that lane's value."""
        source, inside = self._inside(b, lane, by)
        if self.of_all:
            return source, inside
        number = b.convert(b.apply("and", source, b.constant(WARP - 1, I32)), U32)
        named = _lowest_bit(b, b.apply("shr", self.mask, number))
        return source, b.apply("and", inside, named)

    def _inside(self, b: Builder, lane: Value, by: Value) -> tuple[Value, Value]:
        """The lane that a lane asked for and whether it lies in its segment, by CUDA's rules."""
        width = b.convert(self.width, I32)
        start = b.constant(0, I32) if self.segment == WARP else b.apply("and", lane, b.apply("neg", width))
        end = b.apply("add", start, width)
        match self.fn:
            case "shfl_up":
                source = b.apply("sub", lane, by)
                return source, b.apply("ge", source, start, name="~reads")
            case "shfl_down":
                source = b.apply("add", lane, by)
            case "shfl_xor":
                source = b.apply("xor", lane, by)
                if self.segment == WARP:
                    return source, b.constant(True, BOOL)
            case _:
                inner = b.apply("sub", width, b.constant(1, I32))
                return b.apply("or", start, b.apply("and", by, inner)), b.constant(True, BOOL)
        return source, b.apply("lt", source, end, name="~reads")

    def _ballot(self, b: Builder, vote: Value, name: str) -> Value:
        return b.emit(Warp, "vote_ballot", (self.mask, vote), type=U32, name=name)

    def _shuffle(self, b: Builder, fn: str, value: Value, by: Value) -> Value:
        """Among all lanes of the warp: who reads from whom is decided already."""
        return b.emit(Warp, fn, (self.mask, value, by, b.constant(WARP, I32)), type=value.type)


def _lane(b: Builder) -> Value:
    return b.convert(b.builtin("lane_id"), I32)


def _lowest_bit(b: Builder, bits: Value) -> Value:
    return b.apply("ne", b.apply("and", bits, b.constant(1, U32)), b.constant(0, U32))
