"""Compiling, loading and launching on a real GPU, below the public API."""

import struct
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import DeviceError, LaunchError
from kernelgrad.ir.builder import Builder
from kernelgrad.ir.layout import param_layout
from kernelgrad.ir.ops import Barrier, Block, Function, Global, Module, Param, Value
from kernelgrad.ir.types import F32, I32, Array, Pointer
from kernelgrad.runtime.cuda import CudaExecutable, compile_cuda
from kernelgrad.runtime.devices import DeviceMemory, check, current, device_count, driver, limits
from kernelgrad.runtime.launch import BoundArguments, LaunchConfig

FLOATS = Pointer(F32, "global")


def module(name: str, params: list[Value], build: Callable[[Builder], None], *variables: Global) -> Module:
    b = Builder()
    build(b)
    function = Function(name, "kernel", tuple(Param(p, "") for p in params), Block((), tuple(b.ops), ()))
    return Module({name: function}, {g.name: g for g in variables})


def index(b: Builder) -> Value:
    product = b.apply("mul", b.builtin("block_idx"), b.builtin("block_dim"))
    return b.apply("convert", b.apply("add", product, b.builtin("thread_idx")), type=I32, name="i")


def saxpy() -> Module:
    y, x, a, n = Value(FLOATS, "y"), Value(FLOATS, "x"), Value(F32, "a"), Value(I32, "n")

    def build(b: Builder) -> None:
        i = index(b)
        with b.region() as then:
            place = b.offset(y, i)
            b.store(place, b.apply("add", b.load(place), b.apply("mul", a, b.load(b.offset(x, i)))))
        b.if_(b.apply("lt", i, n), then.block(), exits=True)

    return module("saxpy", [y, x, a, n], build)


def copy_through_shared(count: int) -> Module:
    """out[i] = shared[i] = i; `count` 0 is dynamic shared memory."""
    out = Value(FLOATS, "out")

    def build(b: Builder) -> None:
        i = index(b)
        cell = b.offset(b.decay(b.global_ref("s", Array(F32, count), "shared")), i)
        b.store(cell, b.convert(i, F32))
        b.effect(Barrier, "block")
        b.store(b.offset(out, i), b.load(cell))

    return module("fill", [out], build, Global("s", Array(F32, count), "shared"))


def scaled_by_constant() -> Module:
    out = Value(FLOATS, "out")

    def build(b: Builder) -> None:
        i = index(b)
        weights = b.decay(b.global_ref("w", Array(F32, 4), "constant"))
        b.store(b.offset(out, i), b.load(b.offset(weights, i)))

    initial = struct.pack("<4f", 1, 2, 3, 4)
    return module("read", [out], build, Global("w", Array(F32, 4), "constant", initial))


def packed(compiled: Module, *values: float) -> BoundArguments:
    (function,) = compiled.functions.values()
    formats = {FLOATS: "<Q", F32: "<f", I32: "<i"}
    offsets, size = param_layout(function)
    data = bytearray(size)
    for param, offset, value in zip(function.params, offsets, values, strict=True):
        struct.pack_into(formats[param.type], data, offset, value)  # type: ignore[index]
    return BoundArguments(bytes(data))


def on_device(values: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> DeviceMemory:
    memory = DeviceMemory(values.nbytes, 0)
    memory.copy_from_host(values.tobytes())
    return memory


def floats(memory: DeviceMemory) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.frombuffer(memory.copy_to_host(), np.float32)


def compiled(module: Module) -> CudaExecutable:
    (name,) = module.functions
    return compile_cuda(module, name, 0)


def test_devices() -> None:
    assert device_count() >= 1
    assert limits(0).arch.startswith("sm_")
    assert limits(0).shared_per_block_optin >= limits(0).shared_per_block >= 48 * 1024
    with pytest.raises(DeviceError, match="no CUDA device 99"):
        limits(99)


def test_launch() -> None:
    ir = saxpy()
    n = 1000
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    x_memory, y_memory = on_device(x), on_device(y)
    executable = compiled(ir)
    executable.launch(LaunchConfig((8, 1, 1), (128, 1, 1)), packed(ir, y_memory.address, x_memory.address, 2.0, n))
    np.testing.assert_array_equal(floats(y_memory), 2 * x + 1)
    assert executable.registers > 0
    assert executable.max_threads >= 128
    assert executable.local_bytes == 0


def test_launch_is_quick() -> None:
    ir = saxpy()
    memory = on_device(np.zeros(32, np.float32))
    executable, config = compiled(ir), LaunchConfig((1, 1, 1), (32, 1, 1))
    arguments = packed(ir, memory.address, memory.address, 0.0, 32)
    executable.launch(config, arguments)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(50):
            executable.launch(config, arguments)
        best = min(best, (time.perf_counter() - start) / 50)
        memory.copy_to_host()
    assert best < 20e-6, f"{best * 1e6:.1f} us per launch"


def test_launches_from_several_threads() -> None:
    ir = saxpy()
    executable = compiled(ir)
    memories = [on_device(np.zeros(64, np.float32)) for _ in range(8)]
    ones = on_device(np.ones(64, np.float32))

    def work(memory: DeviceMemory, a: float) -> None:
        for _ in range(100):
            executable.launch(LaunchConfig((1, 1, 1), (64, 1, 1)), packed(ir, memory.address, ones.address, a, 64))

    threads = [threading.Thread(target=work, args=(m, float(k))) for k, m in enumerate(memories)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, memory in enumerate(memories):
        np.testing.assert_array_equal(floats(memory), np.full(64, 100.0 * k, np.float32))


@pytest.mark.parametrize("nbytes", [1024, 96 * 1024])
def test_dynamic_shared_memory(nbytes: int) -> None:
    ir = copy_through_shared(0)
    memory = on_device(np.zeros(256, np.float32))
    compiled(ir).launch(LaunchConfig((1, 1, 1), (256, 1, 1), nbytes), packed(ir, memory.address))
    np.testing.assert_array_equal(floats(memory), np.arange(256))


def test_too_much_shared_memory() -> None:
    ir = copy_through_shared(0)
    with pytest.raises(LaunchError, match="bytes of dynamic shared memory"):
        compiled(ir).launch(LaunchConfig((1, 1, 1), (32, 1, 1), 10**6), packed(ir, 0))
    ir = copy_through_shared(10**6)
    with pytest.raises(LaunchError, match="needs 4000000 bytes of shared memory .4000000 in s.; .* has"):
        compiled(ir).launch(LaunchConfig((1, 1, 1), (32, 1, 1)), packed(ir, 0))


def test_arrays_beyond_what_cuda_allows() -> None:
    ir = copy_through_shared(20_000)
    memory = on_device(np.zeros(256, np.float32))
    compiled(ir).launch(LaunchConfig((1, 1, 1), (256, 1, 1)), packed(ir, memory.address))
    np.testing.assert_array_equal(floats(memory), np.arange(256))


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((1, 1, 1), (2048, 1, 1), "2048 threads"),
        ((1, 1, 1), (1, 1, 128), "block"),
        ((1, 70000, 1), (32, 1, 1), "grid"),
        ((0, 1, 1), (32, 1, 1), "grid"),
    ],
)
def test_impossible_configurations(grid: tuple[int, int, int], block: tuple[int, int, int], message: str) -> None:
    ir = saxpy()
    with pytest.raises(LaunchError, match=message):
        compiled(ir).launch(LaunchConfig(grid, block), packed(ir, 0, 0, 0.0, 0))


def test_constants() -> None:
    ir = scaled_by_constant()
    executable, memory = compiled(ir), on_device(np.zeros(4, np.float32))
    config = LaunchConfig((1, 1, 1), (4, 1, 1))
    executable.launch(config, packed(ir, memory.address))
    np.testing.assert_array_equal(floats(memory), [1, 2, 3, 4])
    executable.set_constant("w", struct.pack("<4f", 5, 6, 7, 8))
    executable.launch(config, packed(ir, memory.address))
    np.testing.assert_array_equal(floats(memory), [5, 6, 7, 8])
    with pytest.raises(DeviceError, match="16 bytes"):
        executable.set_constant("w", b"\0")


def test_streams() -> None:
    ir = saxpy()
    bindings = driver()
    with current(0):
        stream = check(bindings, bindings.cuStreamCreate(1))
    memory, ones = on_device(np.zeros(64, np.float32)), on_device(np.ones(64, np.float32))
    config = LaunchConfig((1, 1, 1), (64, 1, 1), stream=int(stream))
    compiled(ir).launch(config, packed(ir, memory.address, ones.address, 3.0, 64))
    with current(0):
        check(bindings, bindings.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(floats(memory), np.full(64, 3.0))


def test_torch_keeps_its_device_and_stream() -> None:
    torch = pytest.importorskip("torch")
    ir = saxpy()
    x, y = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    config = LaunchConfig((1, 1, 1), (64, 1, 1), stream=stream.cuda_stream)
    compiled(ir).launch(config, packed(ir, y.data_ptr(), x.data_ptr(), 2.0, 64))
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(y, 2 * x)
    assert torch.cuda.current_device() == 0


def test_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy")
    ir = saxpy()
    x, y = cupy.ones(64, cupy.float32), cupy.zeros(64, cupy.float32)
    stream = cupy.cuda.get_current_stream().ptr
    config = LaunchConfig((1, 1, 1), (64, 1, 1), stream=stream)
    compiled(ir).launch(config, packed(ir, y.data.ptr, x.data.ptr, 2.0, 64))
    assert bool((y == 2).all())


def test_blocks_larger_than_registers_allow() -> None:
    """Such a launch gets the kernel compiled for fewer registers, with the constants that were set."""
    cupy = pytest.importorskip("cupy")
    module = kg.compile("""__constant__ float factor;
    __global__ void k(float *y, const float *x, int turns, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float v[120];
        #pragma unroll
        for (int k = 0; k < 120; ++k) v[k] = x[(i + k) % n];
        for (int t = 0; t < turns; ++t) {
            #pragma unroll
            for (int k = 0; k < 120; ++k) v[k] = v[k] * factor + x[(i + k * t) % n];
        }
        float sum = 0;
        #pragma unroll
        for (int k = 0; k < 120; ++k) sum += v[k];
        y[i] = sum;
    }""")
    kernel, n = module["k"], 4096
    x = cupy.asarray(np.random.default_rng(0).random(n, np.float32))
    for factor in (0.5, 0.25):
        module.constant("factor")[...] = factor
        wide, narrow = cupy.zeros(n, np.float32), cupy.zeros(n, np.float32)
        kernel[n // 128, 128](wide, x, 7, n)
        kernel[n // 1024, 1024](narrow, x, 7, n)
        assert kernel.compiled[0].max_threads < 1024
        np.testing.assert_allclose(narrow.get(), wide.get(), rtol=1e-6)
