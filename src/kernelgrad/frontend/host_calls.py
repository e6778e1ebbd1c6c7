"""What host code calls: CUDA's runtime and the C library become `HostCall`s, `<<<>>>` a `KernelLaunch`.

A function of the prelude without a row here is refused at its line. CUDA's calls that return an error code return
success: a failure is an exception at the call's line, so that what the program does about errors is dead code.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir.builder import pointee
from ..ir.ops import HostCall, KernelLaunch, PtrCast, Value
from ..ir.types import I8, I64, U8, U64, Array, Pointer, Struct, Type
from . import clang
from .clang import Cursor, Kind
from .expressions import effect, place, value
from .literals import string_place
from .lowering import FunctionLowering as Fn
from .visiting import children_of, walk

Lower = Callable[[Fn, Cursor, Cursor], Value | None]


def host_call(fn: Fn, c: Cursor, target: Cursor) -> tuple[Value | None] | None:
    """The call's value, in a tuple, if it is one of these; None of any other function."""
    if not fn.on_host or not clang.is_in_prelude(target):
        return None
    parent = target.semantic_parent
    row = _STREAMS.get(target.spelling) if _is_stream(parent) else _ROWS.get(target.spelling)
    return None if row is None else (row(fn, c, target),)


def _is_stream(parent: Cursor | None) -> bool:
    return parent is not None and parent.kind == Kind.STRUCT_DECL and parent.spelling == "ostream"


# ---- launches -----------------------------------------------------------------------------------------------------


def launch(fn: Fn, c: Cursor, kernel: Cursor) -> None:
    """`kernel<<<grid, block, shared, stream>>>(...)`"""
    _, configuration, *given = children_of(c)
    grid, block, shared, stream = configuration.get_arguments()
    config = [part for dim in (grid, block) for part in _extents(fn, dim)]
    config.append(fn.constant(0, U64) if _is_default(shared) else value(fn, shared))
    config.append(fn.b.null(Pointer(U8)) if _is_default(stream) else fn.generic(value(fn, stream)))
    params = list(kernel.get_arguments())
    arguments = [value(fn, g) for g in given[: len(params)] if not _is_default(g)]
    if len(arguments) < len(params):
        raise fn.unsupported(c, "a launch that leaves arguments to their defaults", "pass them all")
    span = fn.at(c)
    name = fn.module.function(kernel, span)
    fn.b.span = span
    fn.b.effect(KernelLaunch, name, tuple(config), tuple(fn.generic(a) for a in arguments))


def _is_default(c: Cursor) -> bool:
    return clang.statement_class(c) == clang.DEFAULT_ARG


def _extents(fn: Fn, dim: Cursor) -> list[Value]:
    whole = value(fn, dim)
    return [fn.b.extract(whole, axis) for axis in range(3)]


# ---- calls --------------------------------------------------------------------------------------------------------


def _values(fn: Fn, c: Cursor, target: Cursor) -> list[Value]:
    """As declared; what a variadic function takes besides, as it is."""
    from .calls import call_arguments

    given = call_arguments(fn, c, target)
    rest = list(c.get_arguments())[len(given) :] if target.type.is_function_variadic() else []
    return given + [fn.generic(value(fn, extra)) for extra in rest]


def _emit(fn: Fn, c: Cursor, name: str, args: list[Value], result: Type | None) -> Value | None:
    fn.at(c)
    if result is None:
        fn.b.effect(HostCall, name, tuple(args))
        return None
    return fn.b.emit(HostCall, name, tuple(args), type=result)


def throw(fn: Fn, c: Cursor) -> None:
    """Ends the program; told is the text that the exception has, if it is there."""
    texts = [k for k in walk(c) if k.kind == Kind.STRING_LITERAL]
    args = [fn.generic(fn.b.decay(string_place(fn, texts[0]).ptr))] if texts else []
    _emit(fn, c, "throw", args, None)


def _success(fn: Fn, target: Cursor) -> Value | None:
    result = fn.types.returned(target.result_type, fn.b.span)
    return None if result is None else fn.constant(0, result)


def _forward(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    """The function itself, by its name."""
    args = _values(fn, c, target)
    return _emit(fn, c, target.spelling, args, fn.types.returned(target.result_type, fn.at(c)))


def _checked(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    """Likewise, of one that returns an error code."""
    _emit(fn, c, target.spelling, _values(fn, c, target), None)
    return _success(fn, target)


def _given_back(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    """One that gives something through its first argument: a store of what the call returns, so that the variable can
    be a value."""
    out, *rest = _values(fn, c, target)
    out = _uncast(fn, out)
    type = pointee(out)
    made = _emit(fn, c, target.spelling, rest, type)
    assert made is not None
    fn.b.store(out, made)
    return _success(fn, target)


def _uncast(fn: Fn, ptr: Value) -> Value:
    """`(void **)&p` as `&p`."""
    for op in reversed(fn.b.ops):
        if op.results and op.results[0] is ptr:
            is_pointers = isinstance(op, PtrCast) and isinstance(pointee(op.ptr), Pointer)
            return _uncast(fn, op.ptr) if is_pointers and isinstance(op, PtrCast) else ptr
    return ptr


def _nothing(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    """Hints, and what a kernel is told: of no effect here. Names of kernels are no values."""
    for argument in c.get_arguments():
        if not _names_function(argument):
            effect(fn, argument)
    fn.at(c)
    return _success(fn, target)


def _names_function(c: Cursor) -> bool:
    return any(n.kind == Kind.DECL_REF_EXPR and n.referenced.kind == Kind.FUNCTION_DECL for n in walk(c))


def _print(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    """`stream << value`: text for characters, the number itself for numbers."""
    stream, what = c.get_arguments()
    this = fn.generic(place(fn, stream).ptr)
    argument = place(fn, what).ptr if clang.is_place(what) else fn.variable((v := value(fn, what)).type, None, v)
    fn.at(c)
    type = pointee(argument)
    if isinstance(type, Array) and type.element == I8:
        args = [this, fn.generic(fn.b.decay(argument))]
    elif isinstance(type, Struct) and type.name == "std::string":
        type, text = I8, fn.b.load(fn.b.member(argument, 0))
        return _emit(fn, c, "<<", [this, fn.generic(text)], this.type)
    elif isinstance(type, Struct):
        args = [this, fn.generic(argument)]
    else:
        args = [this, fn.generic(fn.b.load(argument))]
    name = "<<char" if type == I8 else "<<struct" if isinstance(type, Struct) else "<<"
    return _emit(fn, c, name, args, this.type)


def _stream_method(fn: Fn, c: Cursor, target: Cursor) -> Value | None:
    from .calls import call_arguments, object_argument

    args = [*object_argument(fn, c, target), *call_arguments(fn, c, target)]
    return _emit(fn, c, f"ostream::{target.spelling}", args, fn.types.returned(target.result_type, fn.at(c)))


# ---- new and delete -----------------------------------------------------------------------------------------------


def new(fn: Fn, c: Cursor) -> Value:
    type = fn.type(c)
    assert isinstance(type, Pointer)
    parts = [k for k in children_of(c) if k.kind.is_expression()]
    placed = parts.pop(0) if _is_placed(c) else None
    if placed is not None and placed.type.get_canonical().kind == clang.TypeKind.POINTER:
        return _placed(fn, c, type, value(fn, placed), parts)
    is_array = bool(parts) and _is_count(c)
    count = fn.b.convert(value(fn, parts.pop(0)), U64) if is_array else fn.constant(1, U64)
    if is_array and parts and not _is_plain(parts[0]):
        raise fn.unsupported(c, "new of an array with initial values", "assign to its elements")
    is_built = is_array and bool(parts) and clang.statement_class(parts[0]) in clang.CONSTRUCT_EXPRS
    fn.at(c)
    size = fn.b.apply("mul", count, fn.constant(max(1, type.pointee.size), U64))
    name = "calloc" if is_array and parts else "malloc"
    made = fn.b.emit(HostCall, name, (count, fn.constant(type.pointee.size, U64)) if name == "calloc" else (size,),
                     type=Pointer(U8))  # fmt: skip
    memory = fn.b.cast_pointer(made, type)
    if is_built:
        _build_elements(fn, memory, count, parts[0])
    elif parts and not is_array:
        _placed(fn, c, type, memory, parts)
    return memory


def _placed(fn: Fn, c: Cursor, type: Pointer, at: Value, parts: list[Cursor]) -> Value:
    """An object made in memory that is there."""
    from .calls import constructor_call
    from .initialize import value_initialize

    memory = fn.b.cast_pointer(at, type)
    if parts and clang.statement_class(parts[-1]) in (clang.IMPLICIT_ZERO, clang.ZERO_INIT):
        value_initialize(fn, memory)
    elif parts:
        constructor_call(fn, memory, parts[-1])
    return memory


def _build_elements(fn: Fn, first: Value, count: Value, constructor: Cursor) -> None:
    from .calls import constructor_call

    index = Value(I64, "k")
    with fn.b.region() as body:
        constructor_call(fn, fn.b.offset(first, index), constructor)
    fn.b.for_(fn.constant(0, I64), fn.b.convert(count, I64), (), 1, body.block((index,)))


def _is_placed(c: Cursor) -> bool:
    """Whether it is `new (place) T`."""
    words = [token.spelling for token, _ in zip(c.get_tokens(), range(3), strict=False) if token.spelling != "::"]
    return words[:2] == ["new", "("]


def _is_of_array(c: Cursor) -> bool:
    return any(token.spelling == "[" for token, _ in zip(c.get_tokens(), range(3), strict=False))


def _is_count(c: Cursor) -> bool:
    """Whether it is `new T[n]`."""
    depth, words = 0, [token.spelling for token in c.get_tokens()]
    for word in words[_closing(words) if _is_placed(c) else 0 :]:
        depth += {"<": 1, ">": -1, ">>": -2}.get(word, 0)
        if depth == 0 and word in ("[", "(", "{"):
            return bool(word == "[")
    return False


def _closing(words: list[str]) -> int:
    """Behind the first parenthesis."""
    depth = 0
    for k, word in enumerate(words):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == ")" and depth == 0:
            return k + 1
    return len(words)


def _is_plain(c: Cursor) -> bool:
    """`()` of numbers: zeros; a constructor that does nothing."""
    return clang.statement_class(c) in (clang.IMPLICIT_ZERO, *clang.CONSTRUCT_EXPRS)


def delete(fn: Fn, c: Cursor) -> None:
    (operand,) = [k for k in children_of(c) if k.kind.is_expression()]
    from .lifetimes import deleted

    memory = value(fn, operand)
    fn.at(c)
    deleted(fn, c, memory, _is_of_array(c))
    _emit(fn, c, "free", [fn.b.cast_pointer(memory, Pointer(U8))], None)


# ---- the tables ---------------------------------------------------------------------------------------------------


def _rows(lower: Lower, names: str) -> dict[str, Lower]:
    return dict.fromkeys(names.split(), lower)


_ROWS: dict[str, Lower] = {
    **_rows(
        _given_back,
        "cudaMalloc cudaMallocAsync cudaMallocManaged cudaMallocHost cudaHostAlloc cudaHostGetDevicePointer "
        "cudaStreamCreate cudaStreamCreateWithFlags cudaEventCreate cudaEventCreateWithFlags cudaGetDevice "
        "cudaGetDeviceCount cudaEventElapsedTime cudaDeviceGetAttribute cudaDriverGetVersion cudaRuntimeGetVersion "
        "cudaDeviceCanAccessPeer posix_memalign cudaStreamCreateWithPriority cudaGetSymbolAddress cudaGetSymbolSize",
    ),
    **_rows(
        _checked,
        "cudaFree cudaFreeHost cudaFreeAsync cudaMemcpy cudaMemcpyAsync cudaMemcpy2D cudaMemcpy2DAsync cudaMemset "
        "cudaMemsetAsync cudaMemset2DAsync cudaMemcpyFromSymbolAsync "
        "cudaMemset2D cudaMemGetInfo cudaMallocPitch cudaMemcpyToSymbol cudaMemcpyToSymbolAsync cudaMemcpyFromSymbol "
        "cudaDeviceSynchronize cudaThreadSynchronize cudaStreamSynchronize cudaStreamDestroy cudaStreamWaitEvent "
        "cudaEventDestroy cudaEventRecord cudaEventSynchronize cudaGetDeviceProperties cudaSetDevice",
    ),
    **_rows(
        _nothing,
        "cudaDeviceReset cudaThreadExit cudaGetLastError cudaPeekAtLastError cudaStreamQuery cudaEventQuery "
        "cudaHostRegister cudaHostUnregister cudaMemPrefetchAsync cudaMemAdvise cudaDeviceSetCacheConfig "
        "cudaDeviceSetSharedMemConfig "
        "cudaDeviceSetLimit cudaDeviceEnablePeerAccess cudaSetDeviceFlags cudaProfilerStart cudaProfilerStop "
        "cudaFuncSetAttribute cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig fflush sleep usleep",
    ),
    **_rows(
        _forward,
        "cudaGetErrorString cudaGetErrorName malloc calloc free aligned_alloc memcpy memmove memset memcmp strlen "
        "strcmp strncmp strcpy strncpy strcat strchr printf fprintf sprintf snprintf puts putchar fputs fputc putc "
        "exit abort getenv atoi atol atoll atof strtol strtoll strtoul strtoull strtod strtof rand srand rand_r random "
        "srandom drand48 srand48 lrand48 isdigit isspace isalpha tolower toupper time clock gettimeofday clock_gettime "
        "getpid fopen fclose feof fseek ftell rewind fread fwrite fgets fgetc getc ungetc fscanf sscanf remove perror "
        "realloc strdup strstr strrchr strcasecmp strtok __kg_sort_order __kg_nanoseconds __kg_open_text __kg_text_of",
    ),
}
_STREAMS: dict[str, Lower] = {"operator<<": _print, **_rows(_stream_method, "flush precision put write width")}

# What host code calls and nothing stands for here, and why.
_REASONS = {
    "CUDA graphs are not supported: launch the kernels themselves": (
        "cudaStreamBeginCapture cudaStreamEndCapture cudaGraphCreate cudaGraphInstantiate cudaGraphLaunch "
        "cudaGraphExecDestroy cudaGraphDestroy"
    ),
    "an order of one's own is not supported: sort by less or greater": "__kg_unsupported_order",
    "clad::zero_init of an object with a destructor is not supported": "__kg_unsupported_zero",
    "std::function is not supported: use auto for a lambda, a template parameter where one is passed": (
        "__kg_unsupported_function"
    ),
    "threads of the host are not supported": "__kg_unsupported_thread pthread_create cudaLaunchHostFunc",
    "MPI is not supported": (
        "MPI_Init MPI_Finalize MPI_Send MPI_Recv MPI_Isend MPI_Irecv MPI_Bcast MPI_Reduce MPI_Allreduce MPI_Barrier "
        "MPI_Comm_rank MPI_Comm_size MPI_Sendrecv MPI_Wait MPI_Waitall"
    ),
}
REFUSED_ON_HOST = {name: reason for reason, names in _REASONS.items() for name in names.split()}
