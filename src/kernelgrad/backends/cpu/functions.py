"""Every pure function's row (see `scalars`)."""

from __future__ import annotations

from . import bits, elementary, rounding, scalars
from .scalars import Row

TABLE: dict[str, Row] = {**scalars.ROWS, **elementary.ROWS, **rounding.ROWS, **bits.ROWS}
