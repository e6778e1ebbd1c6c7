"""What a recording saved, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from .derivative_steps import DerivativeStep
from .steps import LaunchStep

if TYPE_CHECKING:
    from .record import Tape

_FORMS = {
    "reverse": "reversed from buffers as they were before it",
    "joint": "run again with its reverse: the reverse needs what it made and overwrote on the way",
    "split": "keeps what its reverse needs on a tape of its own",
    "none": "has nothing to reverse",
}


def explain(tape: Tape) -> str:
    lines = [f"{len(tape.steps):,} steps, {tape.nbytes:,} bytes saved"]
    if tape.store.budget is not None:
        lines[0] += f" of a budget of {tape.store.budget:,} (at most {tape.store.peak:,} at a time)"
    return "\n".join([*lines, *_steps(tape), *_saves(tape), *_segments(tape), *_beginnings(tape)])


def _steps(tape: Tape) -> list[str]:
    counts = Counter(_described(step) for step in tape.steps)
    return ["", "steps:", *(f"  {text}: {count:,} x" for text, count in counts.items())]


def _described(step: object) -> str:
    if isinstance(step, DerivativeStep):
        return f"{step.name} is reversed by its second derivative"
    if not isinstance(step, LaunchStep):
        return getattr(step, "name", "")
    form, text = step.form, _FORMS[step.form.kind]
    if form.problem is not None:
        text = f"has no reverse ({form.problem.message}): an error if an adjoint gets there"
    why = f", since {step.varies}" if form.kind == "split" and step.varies else ""
    wide = {name: reach.both for name, reach in step.reach.items() if reach.both not in (None, (0, 0))}
    reached = "".join(f"; reaches up to {sum(b or ()):,} bytes around '{name}'" for name, b in wide.items())
    again = "; nothing of it is read again" if form.kind == "reverse" and not step.reread else ""
    kept = f"; {step.tape_bytes:,} bytes each" if step.tape_bytes else ""
    return f"{step.name} {text}{why}{again}{kept}{reached}"


def _saves(tape: Tape) -> list[str]:
    if not tape.saves:
        return ["", "no buffer was overwritten that a reverse reads"]
    lines = ["", "overwritten, and read by a reverse:"]
    for (reader, parameter, writer), (times, nbytes) in tape.saves.items():
        lines.append(f"  '{parameter}' of {reader}, overwritten by {writer}: {times:,} x, {nbytes:,} bytes")
    return lines


def _segments(tape: Tape) -> list[str]:
    thin = [segment for segment in tape.store.segments if not segment.exact]
    if not thin:
        return []
    steps = sum(segment.length for segment in thin)
    held = sum(segment.nbytes for segment in thin)
    logged = {step.name: step.varies for step in tape.steps if step.logged is not None}
    sums = {step.name for step in tape.steps if isinstance(step, LaunchStep) and step.facts.adds_floats}
    lines = ["", f"{steps:,} steps will be run again, from {len(thin):,} checkpoints of {held:,} bytes"]
    lines += [f"  {name} is not run again, what it wrote is kept: {why}" for name, why in logged.items()]
    return lines + [f"  {name} adds up with atomics: again to rounding" for name in sorted(sums)]


def _beginnings(tape: Tape) -> list[str]:
    """Copies that no reverse needs."""
    found = {id(cell.beginning): cell.beginning for cell in tape.cells if cell.beginning is not None}
    kept = [b for b in found.values() if b.memory is not None]
    if not kept:
        return []
    lines = ["", "kept for tape.program, as long as there is room:"]
    for name, count in Counter((b.parameter, b.step) for b in kept).items():
        nbytes = sum(b.memory.nbytes for b in kept if (b.parameter, b.step) == name)
        lines.append(f"  '{name[0]}', of which {name[1]} may write a part: {count:,} x, {nbytes:,} bytes")
    return lines
