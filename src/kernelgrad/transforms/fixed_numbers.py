"""Arguments that are constants, in a function for launches with those."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.builder import Builder
from ..ir.ops import Block, Function, Value
from ..ir.traverse import substitute, with_body


def with_numbers(function: Function, numbers: Mapping[str, int]) -> Function:
    """With these in place of arguments."""
    b, mapping = Builder(function.span), dict[Value, Value]()
    for param in function.params:
        if param.name in numbers:
            mapping[param.value] = b.constant(numbers[param.name], param.type)
    body = substitute(function.body, mapping)
    return with_body(function, Block(body.args, (*b.ops, *body.ops), body.results))
