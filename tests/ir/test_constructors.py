"""Operations are made and copied by functions that are generated: what those set is what the classes say."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, fields
from inspect import signature
from typing import Any

import pytest

from kernelgrad.errors import UNKNOWN
from kernelgrad.ir.constructors import constructor
from kernelgrad.ir.ops import OPERATIONS, Block, Op, Store, Value
from kernelgrad.ir.traverse import attribute_fields, block_fields, clone, operand_fields, operands, rebuild
from kernelgrad.ir.types import F32

KINDS = [kind for kind in OPERATIONS if kind is not Op]
EMPTY = Block((), (), ())


def made(kind: type[Op], results: int = 1) -> Any:
    """An operation whose fields are all different."""
    kinds = {f.name: str(f.type) for f in fields(kind)}
    values = {name: Value(F32, name) for name in operand_fields(kind)}
    groups = {name: (v, Value(F32)) if kinds[name].startswith("tuple") else v for name, v in values.items()}
    attributes = {name: f"the {name}" for name in attribute_fields(kind)}
    regions = {name: Block((), (), ()) for name in block_fields(kind)}
    return kind(**groups, **attributes, **regions, results=tuple(Value(F32) for _ in range(results)))


@pytest.mark.parametrize("kind", [*KINDS, Block])
def test_parameters_are_the_fields(kind: type[Any]) -> None:
    taken = dict(signature(kind).parameters)
    expected = {f.name: f for f in fields(kind) if f.init}
    assert taken.keys() == expected.keys()
    for name, field in expected.items():
        assert taken[name].kind.name == ("KEYWORD_ONLY" if field.kw_only else "POSITIONAL_OR_KEYWORD")
        assert taken[name].default == (taken[name].empty if field.default is MISSING else field.default)
    positional = [f.name for f in expected.values() if not f.kw_only]
    assert [name for name in taken if name in positional] == positional


@pytest.mark.parametrize("kind", KINDS)
def test_fields_hold_what_is_given(kind: type[Op]) -> None:
    op = made(kind)
    assert op.result is op.results[0] and op.span is UNKNOWN
    assert all(getattr(op, name) == f"the {name}" for name in attribute_fields(kind))
    assert not hasattr(made(kind, results=2), "result")
    with pytest.raises(FrozenInstanceError):
        op.span = UNKNOWN
    with pytest.raises(TypeError, match="unexpected keyword"):
        kind(nothing=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", KINDS)
def test_copies_differ_in_operands_alone(kind: type[Op]) -> None:
    op = made(kind)
    others = {value: Value(F32) for value in operands(op)}
    copy = rebuild(op, others.__getitem__, lambda block: block)
    assert operands(copy) == tuple(others.values()) and copy.results is op.results and copy.result is op.result
    for name in (*attribute_fields(kind), *block_fields(kind)):
        assert getattr(copy, name) is getattr(op, name)
    assert rebuild(op, lambda value: value, lambda block: block) is op
    (cloned,) = clone(Block((), (op,), ()), dict(others)).ops
    assert operands(cloned) == tuple(others.values()) and cloned.result is not op.result


def test_blocks_have_what_passes_note() -> None:
    assert (EMPTY.found_kinds, EMPTY.is_simple, EMPTY.is_lean) == (None, False, False)


def test_a_statement_follows() -> None:
    told: list[Value] = []
    constructor(Store, "tell(ptr)", tell=told.append)(object.__new__(Store), *(Value(F32), Value(F32)))
    assert len(told) == 1
