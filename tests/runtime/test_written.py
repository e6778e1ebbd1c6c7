"""Which pointers a kernel writes through, and the C text of its signature."""

from __future__ import annotations

import pytest

from kernelgrad.ir.builder import Builder
from kernelgrad.ir.ops import Block, Call, Function, Param, Value
from kernelgrad.ir.types import BOOL, F32, I32, U64, Array, Pointer, Struct
from kernelgrad.runtime.signature import c_name, c_signature, declare
from kernelgrad.runtime.written import written_params
from signatures import VIEW, kernel, param, pointer, saxpy

ONE = 1.0


class Kernel:
    """A kernel under construction with pointers x and y, a const one c, a struct s by value and a number n."""

    def __init__(self) -> None:
        self.b = Builder()
        self.params: dict[str, Param] = {
            "x": pointer("x", F32, "float *"),
            "y": pointer("y", F32, "float *"),
            "c": pointer("c", F32, "const float *", const=True),
            "s": param("s", VIEW, "View"),
            "rows": pointer("rows", Pointer(F32), "float **"),
            "n": param("n", I32, "int"),
            "v": param("v", Pointer(F32, "global"), "float *", variable="v"),
        }

    def __getitem__(self, name: str) -> Value:
        return self.params[name].value

    def put(self, ptr: Value) -> None:
        self.b.store(ptr, self.b.constant(ONE, F32))

    def written(self) -> set[str]:
        return set(written_params(kernel(*self.params.values(), body=Block((), tuple(self.b.ops), ()))))


@pytest.fixture
def k() -> Kernel:
    return Kernel()


def test_nothing_written(k: Kernel) -> None:
    k.b.load(k["x"])
    assert k.written() == set()


def test_saxpy_writes_y() -> None:
    assert written_params(saxpy()) == {"y"}


def test_offsets_casts_and_atomics(k: Kernel) -> None:
    cast = k.b.cast_pointer(k.b.offset(k["x"], k["n"]), Pointer(I32))
    k.b.atomic("add", cast, k.b.constant(1, I32))
    assert k.written() == {"x"}


def test_select_of_two(k: Kernel) -> None:
    k.put(k.b.apply("select", k.b.constant(True, BOOL), k["x"], k["y"]))
    assert k.written() == {"x", "y"}


def test_results_of_a_branch(k: Kernel) -> None:
    then, orelse = Block((), (), (k["x"],)), Block((), (), (k["y"],))
    (merged,) = k.b.if_(k.b.constant(True, BOOL), then, orelse)
    k.put(merged)
    assert k.written() == {"x", "y"}


def test_pointers_swapped_in_a_loop(k: Kernel) -> None:
    iv, front, back = Value(I32, "i"), Value(Pointer(F32), "front"), Value(Pointer(F32), "back")
    with k.b.region() as region:
        k.put(front)
    zero = k.b.constant(0, I32)
    k.b.for_(zero, k["n"], (k["x"], k["y"]), 1, region.block((iv, front, back), (back, front)))
    assert k.written() == {"x", "y"}


def test_a_pointer_carried_through_a_while(k: Kernel) -> None:
    here, there = Value(Pointer(F32)), Value(Pointer(F32))
    with k.b.region() as before:
        condition = k.b.constant(False, BOOL)
    with k.b.region() as body:
        moved = k.b.offset(there, k["n"])
    (end,) = k.b.while_((k["y"],), before.block((here,), (condition, here)), body.block((there,), (moved,)))
    k.put(end)
    assert k.written() == {"y"}


def test_a_member_of_a_struct(k: Kernel) -> None:
    k.put(k.b.extract(k["s"], 0))
    assert k.written() == {"s.data"}


def test_a_struct_kept_in_a_local_variable(k: Kernel) -> None:
    local = k.b.alloca(VIEW)
    k.b.store(local, k["s"])
    k.put(k.b.load(k.b.member(local, 0)))
    assert k.written() == {"s"}


def test_a_pointer_kept_in_a_local_variable(k: Kernel) -> None:
    local = k.b.alloca(Pointer(F32))
    later = k.b.load(local)
    k.put(later)  # in program order before the store: loops make that possible
    k.b.store(local, k["y"])
    assert k.written() == {"y"}


def test_a_struct_made_of_pointers(k: Kernel) -> None:
    pair = Array(Pointer(F32), 2)
    k.put(k.b.extract(k.b.aggregate(pair, (k["x"], k["c"])), 0))
    assert k.written() == {"x", "c"}


def test_local_and_module_memory_are_no_arguments(k: Kernel) -> None:
    k.put(k.b.alloca(F32))
    k.put(k.b.global_ref("tile", F32, "shared"))
    k.put(k["v"])
    assert k.written() == set()


def test_pointers_from_the_users_memory(k: Kernel) -> None:
    k.put(k.b.load(k["rows"]))
    assert k.written() == set()


def test_a_pointer_that_went_through_memory(k: Kernel) -> None:
    slot = k.b.global_ref("slot", Pointer(F32), "shared")
    k.b.store(slot, k["x"])
    k.put(k.b.load(slot))
    assert k.written() == {"x"}


def test_an_address_made_of_a_number(k: Kernel) -> None:
    address = k.b.apply("add", k.b.apply("address", k["x"], type=U64), k.b.constant(4, U64))
    k.put(k.b.apply("bitcast", address, type=Pointer(F32)))
    assert k.written() == {"x"}


def test_an_unknown_address_may_be_anybodys(k: Kernel) -> None:
    number = k.b.apply("convert", k["n"], type=U64)
    k.put(k.b.apply("bitcast", number, type=Pointer(F32)))
    assert k.written() == {"x", "y", "s", "rows"}


def test_a_call_may_write_what_it_gets(k: Kernel) -> None:
    k.b.effect(Call, "f", (k["x"], k["n"]))
    assert k.written() == {"x"}


# ---- signatures -----------------------------------------------------------------------------------------------------


def test_signature() -> None:
    assert c_signature(saxpy()) == "__global__ void saxpy(float *y, const float *x, float a, int n)"
    assert c_signature(kernel(*Kernel().params.values())).endswith("View s, float **rows, int n)")


def test_signature_of_a_device_function() -> None:
    result = Value(F32)
    function = Function("f", "device", (param("x", F32, "float"),), Block((), (), (result,)))
    assert c_signature(function) == "__device__ float f(float x)"


@pytest.mark.parametrize(
    ("c_type", "declared"),
    [
        ("int", "int p"),
        ("const float *", "const float *p"),
        ("float *__restrict", "float *__restrict p"),
        ("float (*)[16]", "float (*p)[16]"),
        ("float[4]", "float p[4]"),
        ("Grid<float, 3>", "Grid<float, 3> p"),
    ],
)
def test_declarations(c_type: str, declared: str) -> None:
    assert declare(c_type, "p") == declared


def test_type_names() -> None:
    assert c_name(Pointer(Pointer(F32))) == "float **"
    assert c_name(Array(I32, 3)) == "int[3]"
    assert c_name(Pointer(Struct("S"))) == "S *"
