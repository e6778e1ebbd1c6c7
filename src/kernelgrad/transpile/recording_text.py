"""C++ of recordings, beside this file: what a host function does, step by step, and how it is reversed.

Note [Recordings in C++]
Every step that can carry derivatives is noted with what reverses it. Memory is known by blocks: those that the function
allocates, and those that it is given, each with a shadow beside it. A step that overwrites what it or a step before it
reads again saves that first; while steps are reversed, the last one first, it is put back, so that each finds memory as
it was before it. Steps that run again (launches, loops) may overwrite more: memory of the caller's gets what it held at
the end. Numbers have cells, a place for each value. All of it happens in the default stream, in the order of the host.
"""

from __future__ import annotations

from pathlib import Path

from ..backends.cuda.names import once

TAPE = "kg_recording"  # what a recording is called
RECORDING = once("recording", Path(__file__).with_suffix(".cuh").read_text())
INCLUDES = (
    "algorithm",
    "chrono",
    "cstdlib",
    "cstring",
    "cuda_runtime.h",
    "functional",
    "iostream",
    "map",
    "memory",
    "stdexcept",
    "string",
    "vector",
)
