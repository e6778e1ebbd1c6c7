"""Derivatives of functions as text that is given beside the source: `kg.custom_gradient("f", pullback)`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import ArgumentError

_NAME = re.compile(r"\s*(::)?(\w+::)*\w+\s*$")


@dataclass(frozen=True)
class CustomGradient:
    """For `kg.compile(..., custom=...)`: `name` of the function, and the text of its derivatives."""

    name: str
    pullback: str | None
    tangent: str | None

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ArgumentError(
                f"custom_gradient: wants the name of a function, as in 'f' or 'ns::f', got {self.name!r}"
            )
        if self.pullback is None and self.tangent is None:
            raise ArgumentError(f"custom_gradient: '{self.name}' has neither a pullback nor a tangent")
        for suffix, text in (("pullback", self.pullback), ("tangent", self.tangent)):
            wanted = f"{self.short}_{suffix}"
            if text is not None and not re.search(rf"\b{wanted}\s*\(", text):
                raise ArgumentError(f"custom_gradient: the {suffix} of '{self.name}' is a function '{wanted}'")

    @property
    def short(self) -> str:
        return self.scopes[-1]

    @property
    def scopes(self) -> list[str]:
        return [part for part in self.name.strip().split("::") if part]

    @property
    def text(self) -> str:
        """As it stands after the source, where it sees all of that."""
        *around, _ = self.scopes
        spaces = ["kernelgrad", "custom_derivatives", *around]
        head = "".join(f"namespace {space} {{ " for space in spaces)
        using = f"using namespace ::{'::'.join(around)};" if around else ""
        given = "\n".join(text for text in (self.pullback, self.tangent) if text is not None)
        return f"\n{head}{using}\n{given}\n{'} ' * len(spaces)}\n"
