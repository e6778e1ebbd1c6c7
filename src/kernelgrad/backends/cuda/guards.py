"""What several emitted texts bring along alike: in a namespace of its own and defined once, so that texts can be put
into one file, with each other and with the source that they were made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

NAMESPACE = "kg"
_PREFIX = "KERNELGRAD"


def qualified(name: str) -> str:
    return f"{NAMESPACE}::{name}"


def once(name: str, text: str, tell_apart: bool = False) -> str:
    """The text, for the first that brings it. `tell_apart`: others may have another text under the name, which the
    compiler is to refuse."""
    differs = f"_{hashlib.sha256(text.encode()).hexdigest()[:8]}" if tell_apart else ""
    macro = f"{_PREFIX}_{name.upper()}{differs}"
    return f"#ifndef {macro}\n#define {macro}\n{text}#endif\n"


def in_namespace(texts: Iterable[str]) -> list[str]:
    found = "\n".join(texts)
    return [f"namespace {NAMESPACE} {{\n\n{found}\n}}  // namespace {NAMESPACE}\n"] if found else []
