"""What has a gradient and no second derivative here: an error at its line, with the reason."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...ir.effects import picks
from ...ir.ops import Op
from ..gradient import Gradient


def refuse_second_order(gradient: Gradient) -> None:
    """Raises if the gradient is not one kernel whose every operation has a derivative; forward mode refuses the
    rest."""
    name, function, settings = gradient.kernel.name, gradient.kernel.function, gradient.settings
    if settings.deterministic:
        reason = f"{name}: a gradient with deterministic=True has no derivative: what it adds goes through a log"
        raise UnsupportedError(reason, function.span, "differentiate the gradient without it")
    if settings.shown != settings.listed:
        reason = f"{name}: a struct with numbers beside pointers has no second derivative here"
        raise UnsupportedError(reason, function.span, "pass the numbers as parameters of their own")
    winner = _picking(gradient)
    if winner is not None:
        reason = (
            "an atomic maximum, minimum or exchange has no second derivative here: its winner takes the adjoint, and"
        )
        help = "a tree or a shuffle with fmax or fmin has one"
        raise UnsupportedError(f"{reason} forward mode does not know it", winner.span, help)


def _picking(gradient: Gradient) -> Op | None:
    """The first atomic whose winner takes the adjoint."""
    prepared = gradient.variant().derivative.prepared
    roots = prepared.activity.roots
    return next((op for op in prepared.memory.stores if picks(op) and prepared.memory.of(op.ptr) & roots), None)  # type: ignore[attr-defined]
