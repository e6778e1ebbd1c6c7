"""Calls of CUDA's runtime and the C library in recorded host functions, each as a call of the recording's method that
stands for it, `cudaMalloc` as `kg_recording.device(...)` (`recording_text`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autodiff.integers import HINT
from ..errors import Span, UnsupportedError
from ..ir.ops import HostCall, Member, Value
from ..ir.traverse import walk
from ..ir.types import U8, U64, Pointer
from .integer_memory import SPELLED as INTEGERS
from .recording_text import TAPE

if TYPE_CHECKING:
    from .recorded_function import Skeleton


def not_yet(what: str, span: Span, hint: str = "") -> UnsupportedError:
    instead = "kg.gradient(module[...]) runs it from Python"
    return UnsupportedError(f"{what} cannot be transpiled", span, f"{hint}; {instead}" if hint else instead)


def host_call(at: Skeleton, op: HostCall) -> None:
    if op.fn not in _CALLS:
        raise not_yet(f"{_SHOWN.get(op.fn) or repr(op.fn)} in a host function that is differentiated", op.span)
    _CALLS[op.fn](at, op)


def _allocate(method: str) -> Callable[[Skeleton, HostCall], None]:
    def allocate(at: Skeleton, op: HostCall) -> None:
        count = 2 if op.fn == "calloc" else 1
        args = tuple(at.value(v) for v in op.args[:count])
        at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.{method}", args, type=op.result.type, name=op.result.name)

    return allocate


def _copy_method(at: Skeleton, op: HostCall, to: Value, of: Value) -> str:
    """The method for a copy, by the kind of numbers that its pointers are to."""
    kinds = {k for k in (at.pointed(to), at.pointed(of)) if k is not None}
    if not kinds:
        raise not_yet("a copy of which neither end tells what it holds", op.span, "pass pointers of the type it has")
    numbers = {k for k in kinds if k.is_float}
    if len(numbers) > 1 or not {k.name for k in numbers} <= SPELLED.keys():
        raise UnsupportedError("a copy between memory of different floating-point types, or of halves", op.span)
    if numbers or not at.has_integers:
        return "copy" if not numbers else f"copy_of<{SPELLED[next(iter(numbers)).name]}>"
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if kind is None or kind.name not in INTEGERS:
        raise not_yet("a copy between memory of different integer types, or of small ones", op.span, HINT)
    return f"copy_integers<{INTEGERS[kind.name]}>"


def _copy(at: Skeleton, op: HostCall) -> None:
    to, of, nbytes = op.args[:3]
    method = _copy_method(at, op, to, of)
    at.host(method, tuple(at.value(v) for v in (to, of, nbytes)), None)
    if op.results:
        at.of[op.result] = at.value(to)


def _copy_rows(at: Skeleton, op: HostCall) -> None:
    to, to_pitch, of, of_pitch, width, height = op.args[:6]
    method = _copy_method(at, op, to, of).replace("copy", "copy_rows", 1)
    at.host(method, tuple(at.value(v) for v in (to, to_pitch, of, of_pitch, width, height)), None)


def _copy_symbol(first: bool) -> Callable[[Skeleton, HostCall], None]:
    """`first`: the variable is the first argument, which is copied to; else the second."""

    def copy(at: Skeleton, op: HostCall) -> None:
        to, of, nbytes = op.args[:3]
        method = _copy_method(at, op, to, of)
        ends = [at.value(to), at.value(of)]
        if len(op.args) > 3:
            k = 0 if first else 1
            ends[k] = at.b.offset(at.b.cast_pointer(ends[k], Pointer(U8)), at.value(op.args[3]))
        at.host(method, (*ends, at.value(nbytes)), None)

    return copy


def _fill(at: Skeleton, op: HostCall) -> None:
    at.host("fill", tuple(at.value(v) for v in op.args[:3]), None)
    if op.results:
        at.of[op.result] = at.value(op.args[0])


def _fill_rows(at: Skeleton, op: HostCall) -> None:
    at.host("fill_rows", tuple(at.value(v) for v in op.args[:5]), None)


def _allocate_rows(at: Skeleton, op: HostCall) -> None:
    """Both the memory and the bytes between its rows are given through pointers."""
    memory, pitch, width, height = op.args[:4]
    bytes_of_row = at.b.emit(HostCall, f"{TAPE}.pitch", (at.value(width),), type=U64, name="pitch")
    made = at.b.emit(HostCall, f"{TAPE}.device", (bytes_of_row, at.value(height)), type=Pointer(U8))
    at.b.store(at.value(memory), at.b.cast_pointer(made, _pointee(memory)))
    at.host("overwrite", (at.value(pitch), at.b.constant(U64.size, U64)), None)
    at.b.store(at.value(pitch), at.b.convert(bytes_of_row, _pointee(pitch)))


def _pointee(pointer: Value) -> Any:
    assert isinstance(pointer.type, Pointer)
    return pointer.type.pointee


def _symbol_address(at: Skeleton, op: HostCall) -> None:
    type = op.result.type
    assert isinstance(type, Pointer)
    at.of[op.result] = at.b.cast_pointer(at.value(op.args[0]), type)


# ---- streams of C++


def _print(at: Skeleton, op: HostCall) -> None:
    stream, shown = op.args[:2]
    what = at.manipulator(shown)
    if what is not None:  # in the text by its name, and no value
        at.host(f"print_by<::std::{what}>", (at.value(stream),), None)
    else:
        at.host(_PRINTS[op.fn], (at.value(stream), at.value(shown)), None)
    at.of[op.result] = at.of[stream]


def _flush(at: Skeleton, op: HostCall) -> None:
    at.host("print_by<::std::flush>", (at.value(op.args[0]),), None)
    at.of[op.result] = at.of[op.args[0]]


def _stream_setting(name: str) -> Callable[[Skeleton, HostCall], None]:
    def method(at: Skeleton, op: HostCall) -> None:
        args = tuple(at.value(v) for v in op.args)
        at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.{name}", args, type=op.result.type)

    return method


# The users' names of what our headers call otherwise.
_SHOWN = {
    **dict.fromkeys(("__kg_open_text", "__kg_text_of"), "a stream that writes to a string"),
    "__kg_sort_order": "std::sort, or another that sorts,",
    "ostream::write": "a stream's 'write'",
}
_PRINTS = {"<<": "print", "<<char": "print_char", "<<struct": "print_format", "ostream::put": "print_char"}


def _method(name: str, count: int) -> Callable[[Skeleton, HostCall], None]:
    def method(at: Skeleton, op: HostCall) -> None:
        at.host(name, tuple(at.value(v) for v in op.args[:count]), None)

    return method


def _library(at: Skeleton, op: HostCall) -> None:
    """A function of the C library by its name; no derivative goes through it."""
    args = tuple(at.value(v) for v in op.args)
    call = f"{TAPE}.call(::{op.fn}"
    if op.results:
        at.of[op.result] = at.b.emit(HostCall, call, args, type=op.result.type, name=op.result.name)
    else:
        at.b.effect(HostCall, call, args)


def _query(method: str) -> Callable[[Skeleton, HostCall], None]:
    def query(at: Skeleton, op: HostCall) -> None:
        at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.{method}", (), type=op.result.type)

    return query


def _properties(at: Skeleton, op: HostCall) -> None:
    """Of a device: one call for each member of the struct that the function looks at, as ours has not all of CUDA's."""
    to, device = op.args[0], at.value(op.args[1])
    kind = _pointee(to)
    used = {m.index for m in walk(at.function.body) if isinstance(m, Member) and _pointee(m.ptr) == kind}
    for index in sorted(used):
        method = f"property(&::cudaDeviceProp::{kind.fields[index].name}"
        at.host(method, (device, at.b.member(at.value(to), index)), None)


def _handle(at: Skeleton, op: HostCall) -> None:
    """Of a new stream: zero, as everything is done in the default stream."""
    type = op.result.type
    at.of[op.result] = at.b.null(type) if isinstance(type, Pointer) else at.b.constant(0, type)


def _event(at: Skeleton, op: HostCall) -> None:
    at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.event", (), type=op.result.type, name=op.result.name)


def _elapsed(at: Skeleton, op: HostCall) -> None:
    args = tuple(at.value(v) for v in op.args[:2])
    at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.elapsed", args, type=op.result.type, name=op.result.name)


def _writing(*ends: tuple[int, ...]) -> Callable[[Skeleton, HostCall], None]:
    """A function of the C library that writes through pointers. `ends`: for each, the number of its argument, and of
    those whose product is how many bytes."""

    def call(at: Skeleton, op: HostCall) -> None:
        for to, *sizes in ends:
            given = (at.value(op.args[to]), *(at.value(op.args[k]) for k in sizes))
            at.host("takes", given, None)
        _library(at, op)

    return call


def _scan(first: int) -> Callable[[Skeleton, HostCall], None]:
    """`first`: the number of the first argument that is written through."""

    def scan(at: Skeleton, op: HostCall) -> None:
        for to in op.args[first:]:
            at.host("takes", (at.value(to),), None)
        _library(at, op)

    return scan


def _print_text(at: Skeleton, op: HostCall) -> None:
    to, *rest = (at.value(v) for v in op.args)
    args = (to, *([] if op.fn == "snprintf" else [at.b.constant(1 << 31, U64)]), *rest)
    at.of[op.result] = at.b.emit(HostCall, f"{TAPE}.print_text", args, type=op.result.type)


def _throw(at: Skeleton, op: HostCall) -> None:
    at.host("fails", tuple(at.value(v) for v in op.args), None)


SPELLED = {"f32": "float", "f64": "double"}
_LIBRARY = (
    "strlen", "strcmp", "strncmp", "strcasecmp", "memcmp", "atoi", "atol", "atoll", "atof", "rand", "srand", "random",
    "srandom", "drand48", "srand48", "lrand48", "clock", "getpid", "exit", "abort", "puts", "putchar", "printf",
    "fprintf", "fputs", "fputc", "putc", "fopen", "fclose", "fflush", "feof", "fseek", "ftell", "rewind", "fgetc",
    "getc", "getchar", "ungetc", "fwrite", "perror", "remove", "getenv",
)  # fmt: skip
_CALLS: dict[str, Callable[[Skeleton, HostCall], None]] = {
    **dict.fromkeys(_LIBRARY, _library),
    **dict.fromkeys(("sprintf", "snprintf"), _print_text),
    **dict.fromkeys(("fscanf", "sscanf"), _scan(2)),
    "scanf": _scan(1),
    "fgets": _writing((0, 1)),
    "fread": _writing((0, 1, 2)),
    **dict.fromkeys(("time", "gettimeofday"), _writing((0,))),
    "clock_gettime": _writing((1,)),
    "throw": _throw,
    "cudaGetDeviceProperties": _properties,
    "cudaGetDevice": _query("current_device"),
    "cudaGetDeviceCount": _query("device_count"),
    "__kg_nanoseconds": _query("nanoseconds"),
    **dict.fromkeys(("cudaMalloc", "cudaMallocAsync"), _allocate("device")),
    "cudaMallocManaged": _allocate("managed"),
    "cudaMallocPitch": _allocate_rows,
    "cudaGetSymbolAddress": _symbol_address,
    **dict.fromkeys(_PRINTS, _print),
    "ostream::flush": _flush,
    "ostream::precision": _stream_setting("digits"),
    "ostream::width": _stream_setting("width"),
    **dict.fromkeys(("cudaMemset2D", "cudaMemset2DAsync"), _fill_rows),
    **dict.fromkeys(("malloc", "calloc", "cudaMallocHost", "cudaHostAlloc"), _allocate("host")),
    **dict.fromkeys(("free", "cudaFree", "cudaFreeAsync", "cudaFreeHost"), _method("release", 1)),
    **dict.fromkeys(("cudaMemcpy", "cudaMemcpyAsync", "memcpy", "memmove"), _copy),
    **dict.fromkeys(("cudaMemcpy2D", "cudaMemcpy2DAsync"), _copy_rows),
    **dict.fromkeys(("cudaMemcpyToSymbol", "cudaMemcpyToSymbolAsync"), _copy_symbol(True)),
    **dict.fromkeys(("cudaMemcpyFromSymbol", "cudaMemcpyFromSymbolAsync"), _copy_symbol(False)),
    **dict.fromkeys(("cudaMemset", "cudaMemsetAsync", "memset"), _fill),
    **dict.fromkeys(
        ("cudaDeviceSynchronize", "cudaThreadSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize"),
        _method("synchronize", 0),
    ),
    **dict.fromkeys(("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority"), _handle),
    **dict.fromkeys(("cudaEventCreate", "cudaEventCreateWithFlags"), _event),
    "cudaEventRecord": _method("record_event", 1),
    "cudaEventElapsedTime": _elapsed,
    **dict.fromkeys(
        ("cudaStreamDestroy", "cudaEventDestroy", "cudaStreamWaitEvent", "cudaSetDevice"),
        _method("synchronize", 0),
    ),
}
