"""The table of effects: every operation has its row, and the lists that passes use follow from it."""

from kernelgrad.ir import effects, ops
from kernelgrad.ir.ops import Builtin, Call, Load, Op, Store, Undef, While
from kernelgrad.ir.traverse import block_fields
from kernelgrad.ir.types import I32, I64


def test_every_operation_has_a_row() -> None:
    kinds = {kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, Op) and kind is not Op}
    assert effects.EFFECTS.keys() == kinds


def test_rows_are_of_one_kind() -> None:
    for kind, row in effects.EFFECTS.items():
        assert not (row.pure and (row.reads or row.writes or row.meets or row.seen)), kind
        assert row.nests == bool(block_fields(kind)), kind


def test_what_nobody_uses_stays_where_it_does_something() -> None:
    assert {Store, Call, While} <= set(effects.EFFECTIVE)
    assert not {Load, Undef, Builtin} & set(effects.EFFECTIVE)


def test_clocks_are_not_pure() -> None:
    clock, thread = Builtin("clock64", results=(ops.Value(I64),)), Builtin("thread_idx", 0, results=(ops.Value(I32),))
    assert not effects.is_pure(clock)
    assert not effects.is_addressing(clock)
    assert effects.is_pure(thread)
    assert effects.is_addressing(thread)
