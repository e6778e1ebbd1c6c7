"""The machine code that XLA calls, called by hand: on the CPU, and on a GPU that is not there.

The driver's functions are the test's own: a launch runs the kernel's code for the CPU. So what reaches the driver is
what it would be on a GPU: functions, arguments in one packed buffer, copies, fills, the stream, each in its order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.runtime import cuda, devices
from kernelgrad.runtime.cpu import compile_cpu
from kernelgrad.runtime.launch import BoundArguments, LaunchConfig

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax_kernels import on_cpu, op  # noqa: E402

from kernelgrad.jax.calls import Call, Slot  # noqa: E402
from kernelgrad.jax.launching import result_dtypes, steps_of  # noqa: E402
from kernelgrad.jax.programs import Program  # noqa: E402
from kernelgrad.jax.targets import numbers_in_memory, strides_of  # noqa: E402

STREAM = 77
P, U64, U32, I64, I32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int64, ctypes.c_int32


@pytest.fixture(autouse=True)
def cpu() -> Iterator[None]:
    with on_cpu():
        yield


# ---- frames ----------------------------------------------------------------------------------------------------------


class Buffer(ctypes.Structure):
    _fields_ = (("size", U64), ("next", P), ("dtype", I32), ("data", P), ("rank", I64), ("dims", P))


class Listed(ctypes.Structure):
    _fields_ = (("struct_size", U64), ("next", P), ("size", I64), ("types", P), ("items", P))


class Frame(ctypes.Structure):
    """XLA_FFI_CallFrame; `attrs` has one word more than its place here."""

    _fields_ = (
        ("struct_size", U64), ("extension", P), ("api", P), ("context", P), ("stage", I32),
        ("args", Listed), ("rets", Listed), ("attrs", Listed), ("names", P), ("future", P),
    )  # fmt: skip


class Xla:
    """What handlers ask for; the threads it lends come when they are told to."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.tasks: list[tuple[int, int]] = []
        functions = {6: self._error, 8: self._destroy, 10: self._stream, 17: self._schedule}
        self._kept = {k: ctypes.CFUNCTYPE(P, P)(function) for k, function in functions.items()}
        self.api = (U64 * 24)()
        self.api[4] = 2 << 32  # version 0.2
        for k, function in self._kept.items():
            self.api[k] = ctypes.cast(function, P).value or 0
        self.has_threads = True

    def _error(self, asked: int) -> int:
        size, _, message, code = (U64 * 4).from_address(asked)
        assert size == 28 and code & 0xFFFFFFFF == 13
        self.errors.append(ctypes.string_at(message).decode())
        return 1

    def _destroy(self, asked: int) -> None:
        assert (U64 * 3).from_address(asked)[2] == 5

    def _stream(self, asked: int) -> None:
        assert (U64 * 3).from_address(asked)[2] == 123
        U64.from_address(asked + 24).value = STREAM

    def _schedule(self, asked: int) -> int | None:
        _, _, context, task, data = (U64 * 5).from_address(asked)
        assert context == 123
        if self.has_threads:
            self.tasks.append((task, data))
        return None if self.has_threads else 5

    def call(self, program: Program, arrays: list[Any], stage: int = 3, extension: Any = None) -> bool:
        """Whether it went well."""
        buffers = [Buffer(48, None, 0, a.ctypes.data, a.ndim, None) for a in arrays]
        items = (P * len(buffers))(*[ctypes.addressof(b) for b in buffers])
        frame = Frame(144, extension, ctypes.addressof(self.api), 123, stage)
        frame.args, frame.rets = Listed(40, None, 1, None, items_at(items, 0)), Listed(40)
        frame.rets.size, frame.rets.items = len(buffers) - 1, items_at(items, 1)
        return ctypes.CFUNCTYPE(P, P)(program.address)(ctypes.addressof(frame)) is None

    def help(self) -> None:
        for task, data in self.tasks:
            ctypes.CFUNCTYPE(None, P)(task)(data)
        self.tasks.clear()


def items_at(items: Any, first: int) -> int:
    return ctypes.addressof(items) + 8 * first


def aligned(shape: tuple[int, ...], dtype: Any, to: int = 64) -> Any:
    """Holding anything."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(nbytes + 2 * to, 0x5A, np.uint8)
    start = -memory.ctypes.data % to
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def call_of(made: kg.jax.Op, **named: Any) -> tuple[Call, list[Any]]:
    call, arrays = made._call({name: jnp.asarray(v) if np.ndim(v) else v for name, v in named.items()})
    return call, [np.asarray(array) for array in arrays]


def program_of(kind: Any, call: Call, arrays: list[Any], gpus: tuple[int, ...] = ()) -> Program:
    dtypes = tuple(str(a.dtype) for a in arrays)
    shown = numbers_in_memory(call, dtypes) if gpus else call
    steps = [steps_of(kind, shown, dtypes, device) for device in gpus or (None,)]
    return Program(steps, strides_of(kind, call, dtypes), call.batch, bool(gpus))


def run(xla: Xla, kind: Any, call: Call, arrays: list[Any], gpus: tuple[int, ...] = ()) -> list[Any]:
    program, dtypes = program_of(kind, call, arrays, gpus), tuple(str(a.dtype) for a in arrays)
    shapes = [call.entry_shape(call.shape[name]) for name in call.results(kind)]
    results = [aligned(s, d) for s, d in zip(shapes, result_dtypes(kind, call, dtypes), strict=True)]
    aliases, given = call.aliases(kind), []
    for k, array in enumerate(arrays):
        given.append(results[aliases[k]] if k in aliases else aligned(array.shape, array.dtype))
        given[k][...] = array
    own = [aligned((program.nbytes,), np.uint8)] if program.nbytes else []
    assert xla.call(program, [*given, *results, *own]), xla.errors
    return results


# ---- on the CPU ------------------------------------------------------------------------------------------------------


def test_stages_and_metadata() -> None:
    xla, (call, arrays) = Xla(), call_of(op("waves", {"y": "x"}), x=np.ones(8, np.float32), n=8)
    program = program_of("value", call, arrays)
    y = aligned((8,), np.float32)
    before = y.copy()
    for stage in (0, 1, 2):
        assert xla.call(program, [arrays[0], y], stage)
    metadata, told = (U64 * 6)(48), (U64 * 4)(32, 1, 0)
    told[3] = ctypes.addressof(metadata)
    assert xla.call(program, [arrays[0], y], extension=ctypes.addressof(told))
    assert metadata[3] == 2 << 32 and metadata[4] & 0xFFFFFFFF == 0  # the version it was asked with; no traits
    assert (y.view(np.uint8) == before.view(np.uint8)).all()


def test_buffers_that_are_not_as_agreed() -> None:
    xla, (call, arrays) = Xla(), call_of(op("waves", {"y": "x"}), x=np.ones(8, np.float32), n=8)
    program, x, y = program_of("value", call, arrays), aligned((8,), np.float32), aligned((9,), np.float32)
    assert not xla.call(program, [x, y[1:]]) and not xla.call(program, [x, y[:8], y[:8]])
    assert [error.split()[-1] for error in xla.errors] == ["unaligned", "buffers"]


@pytest.mark.parametrize("helpers", ["come", "come late", "do not come", "are refused"])
def test_helpers(helpers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch is done when nobody works on it, whether those who were asked came or not."""
    monkeypatch.setenv("KERNELGRAD_CPU_THREADS", "3")
    n = 1 << 15
    x = aligned((n,), np.float32)
    x[...] = np.linspace(0, 1, n)
    xla, (call, arrays) = Xla(), call_of(op("waves", {"y": "x"}, block=64), x=x, n=n)
    program, y = program_of("value", call, arrays), aligned((n,), np.float32)
    xla.has_threads = helpers != "are refused"
    if helpers == "come":
        schedule = xla._schedule
        xla._kept[17] = ctypes.CFUNCTYPE(P, P)(lambda asked: (schedule(asked), xla.help())[0])
        xla.api[17] = ctypes.cast(xla._kept[17], P).value or 0
    own = [aligned((program.nbytes,), np.uint8)] if program.nbytes else []
    assert xla.call(program, [x, y, *own])
    np.testing.assert_allclose(y, np.sin(np.sin(np.sin(x) + x) + x) + x, rtol=1e-5)
    assert len(xla.tasks) == {"come late": 2, "do not come": 2}.get(helpers, 0)
    if helpers == "come late":
        y[...] = 0
        xla.help()  # finds nothing to do, and touches nothing
        assert not y.any()


# ---- on a GPU --------------------------------------------------------------------------------------------------------


class Executable:
    """Stands for a kernel that is loaded on a GPU."""

    local_bytes, registers = 0, 32
    loaded: list[Executable] = []  # noqa: RUF012

    def __init__(self, text: str, module: Any, kernel: str, device: int):
        self.code, self.device = compile_cpu(module, kernel), device
        self.loaded.append(self)
        self.number = len(self.loaded)

    def ready(self, config: LaunchConfig) -> tuple[int, int]:
        return self.number, config.shared_bytes


class Driver:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.device, self.failing = 0, 0
        self._kept: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        """The driver's function of that name."""
        types, function = {
            "cuLaunchKernel": ((P, *[U32] * 7, P, P, P), self._launch),
            "cuMemcpyDtoDAsync_v2": ((U64, U64, U64, P), lambda to, of, n, s: ctypes.memmove(to, of, n)),
            "cuMemcpyDtoHAsync_v2": ((P, U64, U64, P), lambda to, of, n, s: ctypes.memmove(to, of, n)),
            "cuStreamSynchronize": ((P,), lambda s: None),
            "cuMemsetD8Async": ((U64, ctypes.c_uint8, U64, P), lambda to, v, n, s: ctypes.memset(to, v, n)),
            "cuMemsetD16Async": ((U64, ctypes.c_uint16, U64, P), lambda to, v, n, s: _fill(ctypes.c_uint16, to, v, n)),
            "cuMemsetD32Async": ((U64, U32, U64, P), lambda to, v, n, s: _fill(U32, to, v, n)),
            "cuMemsetD2D32Async": ((U64, U64, U32, U64, U64, P), self._fill_rows),
            "cuCtxGetDevice": ((P,), self._tell),
        }[name]

        def logged(*args: Any) -> int:
            self.log.append(name.removeprefix("cu").partition("Async")[0])
            assert name == "cuCtxGetDevice" or args[8 if name == "cuLaunchKernel" else -1] == STREAM
            function(*args)
            return self.failing

        return self._kept.setdefault(name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(logged))

    def _tell(self, to: int) -> None:
        I32.from_address(to).value = self.device

    def _launch(self, function: int, *rest: Any) -> None:
        *shape, shared, _, params, extra = rest
        (begin, packed, size, nbytes, end) = (U64 * 5).from_address(extra)
        assert (begin, size, end, params) == (1, 2, 0, None)
        executable = Executable.loaded[function - 1]
        assert executable.device == self.device
        config = LaunchConfig(tuple(shape[:3]), tuple(shape[3:]), shared)
        executable.code.launch(config, BoundArguments(ctypes.string_at(packed, U64.from_address(nbytes).value)))

    def _fill_rows(self, to: int, pitch: int, value: int, width: int, height: int, stream: int) -> None:
        assert width == 1
        for k in range(height):
            U32.from_address(to + k * pitch).value = value


def _fill(type: Any, to: int, value: int, count: int) -> None:
    (type * count).from_address(to)[:] = [value] * count


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda, "CudaExecutable", Executable)
    monkeypatch.setattr(devices, "library", lambda: made)
    return made


def new(name: str, *args: Any, **settings: Any) -> Any:
    """With kernels of its own, which no other test has loaded."""
    from jax_kernels import SOURCE

    settings = {"fill": {"y": 3.5}, **settings} if args else settings
    return kg.jax.op(kg.compile(SOURCE + f"// {name} for a GPU")[name], *args, **settings)


X, W, A = np.linspace(0.1, 1, 1000), np.linspace(0.5, 2, 1000), 1.5


def weighted(**settings: Any) -> tuple[Call, list[Any]]:
    made = new("weighted", {"y": "x"}, **settings)
    made._family.kernel._executables.pop(0, None)
    return call_of(made, x=X, w=W, a=jnp.float64(A), n=1000)


def test_a_value_on_a_gpu(driver: Driver) -> None:
    call, arrays = weighted()
    (y,) = run(Xla(), "value", call, arrays, (0,))
    np.testing.assert_allclose(y, A * X * X * np.sin(W))
    assert driver.log == ["MemsetD2D32"] * 2 + ["LaunchKernel"]


def test_numbers_of_another_type_are_fetched(driver: Driver) -> None:
    """A double that JAX has as a float, and halves, whose adjoints are floats."""
    x = np.linspace(0, 1, 100, dtype=np.float32)
    call, arrays = call_of(new("single", {"y": "x"}, fill={"y": None}), x=x, a=jnp.float64(A), n=100)
    arrays[1] = np.float32(A)
    (y,) = run(Xla(), "value", call, arrays, (0,))
    np.testing.assert_allclose(y, A * x * x, rtol=1e-6)
    assert driver.log == ["LaunchKernel", "MemcpyDtoH", "StreamSynchronize", "LaunchKernel"]
    backward = call.with_slots((Slot("cotangent", "y"), *call.slots), (), ("a",))
    (a,) = run(Xla(), "backward", backward, [x, *arrays], (0,))
    np.testing.assert_allclose(a, (x * x * x).sum(), rtol=1e-5)
    assert a.dtype == np.float32


@pytest.mark.parametrize("gpus", [(0,), (0, 1)])
def test_gradients_on_gpus(driver: Driver, gpus: tuple[int, ...]) -> None:
    """On the last of them. Where there is one, nobody asks which it is."""
    call, arrays = weighted(block=64 * len(gpus))
    driver.device, seed = len(gpus) - 1, np.cos(X)
    backward = call.with_slots((Slot("cotangent", "y"), *call.slots), (), ("x", "w", "a"))
    x, w, a = run(Xla(), "backward", backward, [seed, *arrays], gpus)
    np.testing.assert_allclose(x, 2 * A * X * np.sin(W) * seed)
    np.testing.assert_allclose(w, A * X * X * np.cos(W) * seed)
    np.testing.assert_allclose(a, (X * X * np.sin(W) * seed).sum())
    assert ("CtxGetDevice" in driver.log) == (len(gpus) > 1)
    tangent = call.with_slots((Slot("tangent", "x"), *call.slots), (), ())
    np.testing.assert_allclose(run(Xla(), "tangent", tangent, [W, *arrays], gpus)[0], 2 * A * X * W * np.sin(W))
    second = call.with_slots((Slot("cotangent", "y"), Slot("tangent", "x"), *call.slots), (), ("x", "w"))
    x, w = run(Xla(), "second", second, [seed, W, *arrays], gpus)
    np.testing.assert_allclose(x, 2 * A * np.sin(W) * seed * W)
    np.testing.assert_allclose(w, 2 * A * X * np.cos(W) * seed * W)


def test_batches_in_place_on_a_gpu(driver: Driver) -> None:
    x = np.linspace(0.1, 1, 21).reshape(3, 7)
    call, arrays = call_of(new("grow"), x=x[0], a=0.5, n=7)
    (found,) = run(Xla(), "value", call.in_batch(3, (True,)), [x], (0,))
    np.testing.assert_allclose(found, 0.5 * np.exp(x) * x)
    assert driver.log == ["LaunchKernel"] * 3 and len(arrays) == 1


def test_command_buffers_take_what_the_host_has_no_part_in(driver: Driver) -> None:
    def traits(program: Program) -> int:
        metadata, told = (U64 * 6)(48), (U64 * 4)(32, 1, 0)
        told[3] = ctypes.addressof(metadata)
        assert Xla().call(program, [X], extension=ctypes.addressof(told))
        return metadata[4] & 0xFFFFFFFF

    assert traits(program_of("value", *call_of(new("grow"), x=X, a=0.5, n=1000), (0,))) == 1
    assert traits(program_of("value", *weighted(), (0,))) == 1
    call, arrays = call_of(new("single", {"y": "x"}), x=X.astype(np.float32), a=jnp.float64(A), n=1000)
    assert traits(program_of("value", call, [arrays[0], np.float32(A)], (0,))) == 0  # fetches a number
    counted, given = call_of(new("until", {"y": "x"}), x=X + 0.3, n=1000)
    backward = counted.with_slots((Slot("cotangent", "y"), *counted.slots), (), ("x",))
    assert traits(program_of("backward", backward, [X, *given], (0,))) == 0  # counts


def test_errors_of_the_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    bindings = SimpleNamespace(
        cuGetErrorName=lambda k: (0, f"CUDA_{k}".encode()), cuGetErrorString=lambda k: (0, b"no")
    )
    monkeypatch.setattr(devices, "driver", lambda: bindings)
    xla, (call, arrays) = Xla(), call_of(new("grow"), x=X, a=0.5, n=1000)
    driver.failing = 719
    assert not xla.call(program_of("value", call, arrays, (0,)), [X, aligned((1000,), float)])
    assert xla.errors == ["the CUDA driver reports CUDA_719: no"]
