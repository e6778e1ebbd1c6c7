"""`KernelMaker`: kernels written with the IR's builder, run on the CPU with NumPy arrays."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelgrad.errors import Source, Span
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.ops import Barrier, Block, Function, Global, Module, Param, Value, Warp
from kernelgrad.ir.types import I32, Array, Pointer, Scalar, Struct, Type
from kernelgrad.ir.verifier import verify
from kernelgrad.runtime.cpu import compile_cpu
from kernelgrad.runtime.launch import BoundArguments, Buffer, LaunchConfig

_CODES = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f"}
_CODES |= {"f64": "d", "bool": "?"}


def _dim3(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    dims = (size,) if isinstance(size, int) else size
    x, y, z = (*dims, 1, 1)[:3]
    return x, y, z


class KernelMaker:
    """The function under construction is `b`'s; `args` are the parameters' values by name."""

    def __init__(self, restrict: bool = False, **params: Type):
        self.b = Builder()
        self.args = {name: Value(type, name) for name, type in params.items()}
        self.params = tuple(Param(v, "", restrict=restrict) for v in self.args.values())
        self.globals: dict[str, Global] = {}
        self.structs: dict[str, Struct] = {}

    def __getattr__(self, name: str) -> Value:
        return self.args[name]

    # ---- building

    def at(self, line: int) -> None:
        self.b.span = Span(Source("test.cu"), line, 1)

    def const(self, value: float, type: Type = I32) -> Value:
        return self.b.constant(value, type)

    def op(self, fn: str, *args: Value, type: Type | None = None) -> Value:
        return self.b.apply(fn, *args, type=type)

    def index(self, axis: int = 0) -> Value:
        """blockIdx * blockDim + threadIdx, as an int."""
        first = self.op("mul", self.b.builtin("block_idx", axis), self.b.builtin("block_dim", axis))
        return self.b.convert(self.op("add", first, self.b.builtin("thread_idx", axis)), I32)

    def thread(self, axis: int = 0) -> Value:
        return self.b.convert(self.b.builtin("thread_idx", axis), I32)

    def get(self, ptr: Value, index: Value, volatile: bool = False) -> Value:
        return self.b.load(self.b.offset(ptr, index), volatile)

    def put(self, ptr: Value, index: Value, value: Value, volatile: bool = False) -> None:
        self.b.store(self.b.offset(ptr, index), value, volatile)

    def shared(self, name: str, type: Array) -> Value:
        self.globals[name] = Global(name, type, "shared", span=self.b.span)
        return self.b.decay(self.b.global_ref(name, type, "shared"))

    def barrier(self) -> None:
        self.b.effect(Barrier, "block")

    def warp(self, fn: str, *args: Value, type: Type) -> Value:
        return self.b.emit(Warp, fn, args, type=type)

    @contextmanager
    def when(self, cond: Value, exits: bool = False) -> Iterator[None]:
        with self.b.region() as region:
            yield
        self.b.if_(cond, region.block(), exits=exits)

    def loop(
        self,
        lower: Value,
        upper: Value,
        inits: tuple[Value, ...],
        body: Callable[..., tuple[Value, ...]],
        step: int = 1,
    ) -> tuple[Value, ...]:
        args = (Value(lower.type), *(Value(v.type) for v in inits))
        with self.b.region() as region:
            results = body(*args)
        return self.b.for_(lower, upper, inits, step, region.block(args, results))

    def repeat(
        self,
        inits: tuple[Value, ...],
        before: Callable[..., tuple[Value, ...]],
        body: Callable[..., tuple[Value, ...]],
    ) -> tuple[Value, ...]:
        args = tuple(Value(v.type) for v in inits)
        with self.b.region() as first:
            forwarded = before(*args)
        inner = tuple(Value(v.type) for v in forwarded[1:])
        with self.b.region() as second:
            results = body(*inner)
        return self.b.while_(inits, first.block(args, forwarded), second.block(inner, results))

    # ---- running

    def module(self) -> Module:
        body = Block((), tuple(self.b.ops), ())
        module = Module({"k": Function("k", "kernel", self.params, body)}, self.globals, self.structs)
        verify(module, "test")
        return module

    def bind(self, **args: Any) -> BoundArguments:
        function = self.module().functions["k"]
        offsets, size = param_layout(function)
        packed, buffers = bytearray(size), []
        for param, offset in zip(function.params, offsets, strict=True):
            data = self._pack(param.type, args[param.name])
            packed[offset : offset + len(data)] = data
            if isinstance(param.type, Pointer):
                array = args[param.name]
                buffers.append(Buffer(param.name, array.ctypes.data, array.nbytes))
        return BoundArguments(bytes(packed), tuple(buffers), tuple(args.values()))

    @staticmethod
    def _pack(type: Type, value: Any) -> bytes:
        if isinstance(type, Pointer):
            assert isinstance(value, np.ndarray) and value.flags.c_contiguous
            return struct.pack("<Q", value.ctypes.data)
        if isinstance(type, Scalar) and type.name in _CODES:
            return struct.pack("<" + _CODES[type.name], value)
        return bytes(value)

    def run(self, grid: int | tuple[int, ...], block: int | tuple[int, ...], shared: int = 0, **args: Any) -> None:
        config = LaunchConfig(_dim3(grid), _dim3(block), shared)
        compile_cpu(self.module(), "k").launch(config, self.bind(**args))


@pytest.fixture
def make() -> type[KernelMaker]:
    return KernelMaker


@pytest.fixture(autouse=True, scope="module")
def own_cache(cache_of_its_own: Path) -> Path:
    return cache_of_its_own
