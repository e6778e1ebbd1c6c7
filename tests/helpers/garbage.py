"""Python's garbage collector, where its own time would be most of a test's."""

from __future__ import annotations

import gc


def collect_for_good() -> None:
    """Collects garbage, and never looks again at what is left: that is what caches hold after thousands of tests."""
    gc.collect()
    gc.freeze()
