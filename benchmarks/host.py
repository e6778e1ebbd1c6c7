"""What a launch costs on the host, in microseconds, on a computer without a GPU: `python benchmarks/host.py --help`.

The kernels of gradients.py on tiny arrays: the kernel, J and R as there. The CPU runs the kernels too, so what stands
here is a little more than the host's part; `--bare` leaves their code out and keeps all that comes before it. With a
GPU, `gradients.py --host` measures the whole. `--jax`: jitted calls of operators of JAX, beside `x + 1`. `--torch`:
calls of operators of PyTorch and plain launches on tensors, beside an `autograd.Function` written by hand around raw
kernels; on a GPU if PyTorch has one, where it is the host's time that is measured, and launches that are not replayed
and the calls of the driver that they make are told apart, beside the same calls through cuda-bindings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import kernelgrad as kg
import recorded
from contenders import OnCpu, Problem
from gradient_rows import SOURCE, rows

SCALE = 0.0001
KERNELS = ("sine", "scale", "stencil", "softmax", "matmul")
CONTENDERS = ("primal", "J", "R")
LAUNCHES = 10


def microseconds(runs: list[Callable[[], None]], batches: int, launches: int = LAUNCHES) -> list[float]:
    """Of each the best of many short batches that take turns: what else the computer does only adds to it."""

    def batch(run: Callable[[], None]) -> float:
        start = time.perf_counter()
        for _ in range(launches):
            run()
        return (time.perf_counter() - start) / launches * 1e6

    return [min(times) for times in zip(*([batch(run) for run in runs] for _ in range(batches)), strict=True)]


def leave_out_kernels() -> None:
    from kernelgrad.runtime.cpu import CpuExecutable

    def nothing(*_: Any) -> None: ...

    CpuExecutable.launch = nothing  # type: ignore[method-assign]


JAX_SOURCE = """
__global__ void add(float *y, const float *x, const float *a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + a[0];
}
__global__ void raise(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += a;
}
"""


def in_jax(batches: int) -> None:
    import jax
    import jax.numpy as jnp

    module = kg.compile(JAX_SOURCE)
    add, increase = kg.jax.op(module["add"], {"y": "x"}, fill={"y": None}), kg.jax.op(module["raise"])
    x, a, ones = jnp.ones(256, jnp.float32), jnp.ones(1, jnp.float32), jnp.ones(256, jnp.float32)
    functions: dict[str, Callable[[Any], Any]] = {
        "x + 1": lambda x: x + 1,
        "an operator": lambda x: add(x, a),
        "in place, with a number": lambda x: increase(x, a[0]),
        "its gradient": lambda x: jax.vjp(lambda x: add(x, a), x)[1](ones)[0],
        "x + 1, four in a vmap": lambda x: jax.vmap(lambda x: x + 1)(x.reshape(4, -1)),
        "an operator, four in a vmap": lambda x: jax.vmap(lambda x: add(x, a))(x.reshape(4, -1)),
    }
    jitted = [jax.jit(function) for function in functions.values()]
    runs = [lambda function=function: function(x).block_until_ready() for function in jitted]
    for run in runs:
        run()
    print("| jitted | us |\n|---|---|")
    for name, took in zip(functions, microseconds(runs, batches), strict=True):
        print(f"| {name} | {took:.1f} |")


TORCH_SOURCE = """
extern "C" __global__ void multiply(float *y, const float *x, const float *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[i];
}
extern "C" __global__ void reverse(float *d_x, float *d_w, const float *d_y, const float *x, const float *w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { d_x[i] = w[i] * d_y[i]; d_w[i] = x[i] * d_y[i]; }
}
"""
N = 256


def raw_kernel(name: str, device: str) -> Callable[..., None]:
    """As somebody would launch it by hand who counts microseconds: the driver is called with arguments that are only
    filled in; nothing at all on the CPU."""
    if device == "cpu":
        return lambda *_: None
    import ctypes

    import torch

    from kernelgrad.runtime.cuda import compile_only
    from kernelgrad.runtime.devices import check, driver, limits, primary_context

    ours, stream = driver(), torch._C._cuda_getCurrentRawStream
    module = check(ours, ours.cuModuleLoadData(compile_only(TORCH_SOURCE, limits(0).arch)))
    function = ctypes.c_void_p(check(ours, ours.cuModuleGetFunction(module, name.encode())))
    values = (ctypes.c_uint64 * 6)()
    addresses = (ctypes.c_void_p * 6)(*[ctypes.addressof(values) + 8 * k for k in range(6)])

    def launch(*arrays: Any) -> None:
        for k, array in enumerate(arrays):
            values[k] = array.data_ptr()
        values[len(arrays)] = N
        whole = function, 1, 1, 1, N, 1, 1, 0, ctypes.c_void_p(stream(0)), addresses, None
        if ours.launch_kernel(*whole) != 0:  # this thread has no context yet
            check(ours, ours.cuCtxPushCurrent(primary_context(0)))
            assert ours.launch_kernel(*whole) == 0

    return launch


def by_hand(device: str, is_empty: bool = False) -> Any:
    """The shortest function that computes the same; on the CPU, or where it is to be empty, without its kernels."""
    import torch

    multiply, reverse = (raw_kernel(name, "cpu" if is_empty else device) for name in ("multiply", "reverse"))

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            y = torch.empty_like(x)
            multiply(y, x, w)
            return y

        @staticmethod
        def backward(ctx: Any, d_y: Any) -> Any:
            x, w = ctx.saved_tensors
            d_x, d_w = torch.empty_like(x), torch.empty_like(w)
            reverse(d_x, d_w, d_y, x, w)
            return d_x, d_w

    return Product.apply


class Interface:
    """A tensor that shows the CUDA array interface alone: its launches are not replayed."""

    def __init__(self, tensor: Any):
        self._tensor, self.__cuda_array_interface__ = tensor, tensor.__cuda_array_interface__

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def driver_calls() -> dict[str, Callable[[], Any]]:
    """The calls of a launch: ours, and by cuda-bindings where they are installed."""
    import ctypes

    from kernelgrad.runtime.cuda import compile_only
    from kernelgrad.runtime.devices import check, driver, limits

    ours, empty = driver(), 'extern "C" __global__ void nothing() {}'
    module = check(ours, ours.cuModuleLoadData(compile_only(empty, limits(0).arch)))
    function = check(ours, ours.cuModuleGetFunction(module, b"nothing"))
    handle = ctypes.c_void_p(function)
    calls: dict[str, Callable[[], Any]] = {
        "cuLaunchKernel": lambda: ours.launch_kernel(handle, 1, 1, 1, 1, 1, 1, 0, None, None, None),
        "cuCtxGetCurrent": lambda: ours.cuCtxGetCurrent(),
    }
    try:
        from cuda.bindings import driver as theirs
    except ImportError:
        return calls
    return calls | {
        "cuLaunchKernel, cuda-bindings": lambda: theirs.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0),
        "cuCtxGetCurrent, cuda-bindings": lambda: int(theirs.cuCtxGetCurrent()[1]),
    }


def in_torch(batches: int) -> None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    kernel = kg.compile(TORCH_SOURCE)["multiply"]
    gradient = kg.gradient(kernel, "y, x, w", primal=False, keep="y", assign="x, w")
    x, w = (torch.ones(N, device=device) for _ in range(2))
    y, seed, d_x, d_w = (torch.ones(N, device=device) for _ in range(4))
    leaves = [t.clone().requires_grad_() for t in (x, w)]
    op, hand, empty = kg.torch.op(kernel, {"y": "x"}, fill={"y": None}), by_hand(device), by_hand(device, True)
    filled = kg.torch.op(kernel, {"y": "x"})

    def backward(of: Any) -> Callable[[], None]:
        result = of(*leaves)
        return lambda: torch.autograd.grad(result, leaves, seed, retain_graph=True)  # type: ignore[func-returns-value]

    def here(run: Callable[[], None]) -> Callable[[], None]:
        """Without the threads that PyTorch has for each GPU: to wake one takes its time."""

        def alone() -> None:
            with torch.autograd.set_multithreading_enabled(False):
                run()

        return alone

    runs: dict[str, Callable[[], None]] = {
        "launch": lambda: kernel[1, N](y, x, w, N),
        "gradient launch": lambda: gradient[1, N](None, x, w, N, seed, d_x, d_w),
        "by hand without a kernel, forward": lambda: empty(*leaves),
        "by hand, forward": lambda: hand(*leaves),
        "operator, without a graph": lambda: op(x, w),
        "operator, forward": lambda: op(*leaves),
        "operator, forward, output zeroed": lambda: filled(*leaves),
        "by hand without a kernel, backward": backward(empty),
        "by hand, backward": backward(hand),
        "operator, backward": backward(op),
        "by hand, backward on this thread": here(backward(hand)),
        "operator, backward on this thread": here(backward(op)),
    }
    if device == "cuda":
        shown = [Interface(t) for t in (y, x, w, seed, d_x, d_w)]
        runs |= {
            "launch, not replayed": lambda: kernel[1, N](*shown[:3], N),
            "gradient launch, not replayed": lambda: gradient[1, N](None, *shown[1:3], N, *shown[3:]),
        } | driver_calls()
    settled = torch.cuda.synchronize if device == "cuda" else lambda: None
    for run in runs.values():
        for _ in range(3):
            run()
    print(f"| on {device} | us |\n|---|---|")
    for name, run in runs.items():
        times = []
        for _ in range(batches):  # short ones, each of which begins with an empty queue
            settled()
            times += microseconds([run], 1, 100)
        print(f"| {name} | {min(times):.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--recorded", action="store_true", help="loops of launches: plain, recorded, reversed")
    parser.add_argument("--bare", action="store_true", help="do not run the kernels' code")
    parser.add_argument("--jax", action="store_true", help="jitted calls of operators of JAX")
    parser.add_argument("--torch", action="store_true", help="calls of operators of PyTorch")
    options = parser.parse_args()
    if options.torch:
        in_torch(options.batches)
        return
    if options.jax:
        in_jax(options.batches)
        return
    if options.recorded:
        recorded.main()
        return
    if options.bare:
        leave_out_kernels()
    module, launcher = kg.load(SOURCE), OnCpu()
    print("| kernel | primal us | J us | R us | J / primal | R / primal |\n|---|---|---|---|---|---|")
    for row in rows(SCALE):
        if row.kernel in KERNELS and options.only in row.name:
            contenders = Problem(row, module[row.kernel], launcher).contenders()
            primal, *others = microseconds([contenders[n] for n in CONTENDERS], options.batches)
            times = " | ".join(f"{t:.1f}" for t in (primal, *others))
            print(f"| {row.name} | {times} | {' | '.join(f'{t / primal:.1f}x' for t in others)} |", flush=True)


if __name__ == "__main__":
    main()
