"""Constructors of frozen classes with slots, in half the time of those that `dataclass` makes.

Passes make operations more often than anything else. A frozen dataclass sets its fields by name, through
`object.__setattr__`; here each slot's own setter is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any


def constructor(kind: type[Any], after: str = "", **given: Any) -> Callable[..., None]:
    """What `dataclass` makes of the fields of `kind`, which have no factories for defaults. `after`: a statement in
    place of `__post_init__`, over the fields' names and what is `given`."""
    parameters, lines, names = ["self"], [], dict(given)
    for field in sorted(fields(kind), key=lambda field: bool(field.kw_only)):
        if field.init:
            if field.kw_only and "*" not in parameters:
                parameters.append("*")
            parameters.append(_parameter(field))
        elif field.default is MISSING:
            continue  # `after` sets it
        names[f"default_{field.name}"] = field.default
        names[f"put_{field.name}"] = vars(_owner(kind, field.name))[field.name].__set__
        lines.append(f"    put_{field.name}(self, {field.name if field.init else f'default_{field.name}'})")
    text = f"def __init__({', '.join(parameters)}):\n" + "\n".join([*lines, f"    {after or 'pass'}"])
    exec(text, names)
    return names["__init__"]  # type: ignore[no-any-return]


def _parameter(field: Field[Any]) -> str:
    return field.name if field.default is MISSING else f"{field.name}=default_{field.name}"


def _owner(kind: type[Any], name: str) -> type[Any]:
    """The class that has the slot."""
    return next(base for base in kind.__mro__ if name in vars(base))
