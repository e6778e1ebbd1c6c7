"""Gradients on a GPU against their kernels: `python benchmarks/gradients.py --help`.

J: value and gradient in one call. R: `primal=False`, outputs' adjoints kept, inputs' adjoints assigned: what a
framework's backward pass needs. Floor: the time in which the bytes that R must move pass at 4.2 TB/s. Atomics: R with
an atomic for every read. Medians of launches timed by events; the kernel and its gradients take turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import kernelgrad as kg

SOURCE = Path(__file__).parent / "kernels" / "gradients.cu"
BYTES_PER_MS = 4.2e9
DELAY = """
extern "C" __global__ void delay(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {}
}
"""
DELAY_CYCLES = 6_000_000  # some milliseconds


@dataclass(frozen=True)
class Row:
    """`inputs`: differentiated arrays that are only read; `passes`: elements that R reads and writes."""

    name: str
    kernel: str
    grid: Any
    block: Any
    outputs: tuple[int, ...]  # sizes
    inputs: tuple[int, ...]
    rest: tuple[Any, ...]  # further arguments
    target: tuple[float | None, float | None] = (None, None)  # J and R, as multiples of the kernel
    listed: str | None = None


def rows(scale: float) -> list[Row]:
    n = max(1 << 12, int((64 << 20) * scale) // 4096 * 4096)
    few = max(1 << 12, n // 16)
    side = max(32, int(512 * scale ** (1 / 3)) // 32 * 32)
    wide = max(64, int(2048 * scale ** (1 / 3)) // 32 * 32)
    bodies = max(256, int(65536 * scale**0.5) // 256 * 256)
    lines = max(4, int(65536 * scale))
    half = max(16, int(256 * scale ** (1 / 3)) // 16 * 16)
    sizes = np.array([half, half, half, 16, 16], np.uint64)
    flat = (n // 256, 256)
    sorted_index = np.repeat(np.arange(n // 64, dtype=np.int32), 64)
    random_index = np.random.default_rng(1).integers(0, n, n, dtype=np.int32)
    return [
        Row("sin(x) * x", "sine", *flat, (n,), (n,), (n,), (1.8, 1.2)),
        Row("polynomial, degree 16", "polynomial", *flat, (n,), (n,), (n,), (3.2, 1.7)),
        Row("x * a, d_a only", "scale", *flat, (n,), (n,), (1.5, n), (2.3, 1.3), "y, a"),
        Row(
            "tensor contraction",
            "contraction",
            half * half,
            256,
            (half * half * 256,),
            (half**3, half * 256),
            (sizes,),
        ),
        Row("7-point stencil", "stencil", (side // 32, side // 8, side), (32, 8), (side**3,), (side**3,), (side,)),
        Row(
            "tiled matrix product",
            "matmul",
            (wide // 32, wide // 32),
            (32, 32),
            (wide**2,),
            (wide**2,) * 2,
            (wide,),
            (None, 4),
        ),
        Row("block sum", "block_sum", *flat, (n // 256,), (n,), (n,), (None, 2.2)),
        Row("row softmax", "softmax", lines, 256, (lines * 1024,), (lines * 1024,), (), (None, 2.5)),
        Row("layer norm", "layer_norm", lines, 256, (lines * 1024,), (lines * 1024, 1024, 1024), (), (None, 3)),
        Row("convolution, 31 taps", "convolution", *flat, (n,), (n + 31, 31), (n,), (None, 5)),
        Row("n-body tiles", "nbody", bodies // 256, 256, (bodies,) * 3, (bodies,) * 3, (bodies,), (None, 6)),
        Row("logistic map, 100 steps", "logistic", few // 256, 256, (few,), (few,), (3.5, few), (4, None), "y, x"),
        Row(
            "logistic map, n steps",
            "logistic_runtime",
            few // 256,
            256,
            (few,),
            (few,),
            (3.5, few, 100),
            (6, None),
            "y, x",
        ),
        Row("gather, random", "gather", *flat, (n,), (n,), (random_index, n)),
        Row("gather, sorted by 64", "gather", *flat, (n,), (n // 64,), (sorted_index, n)),
    ]


@dataclass
class Timer:
    """Runs contenders in turns; medians in milliseconds."""

    repeats: int

    def __call__(self, contenders: dict[str, tuple[Callable[[], None], Callable[[], None]]]) -> dict[str, float]:
        import cupy

        delay = cupy.RawKernel(DELAY, "delay")
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(self.repeats + 2):
            for name, (prepare, run) in contenders.items():
                prepare()
                start, end = cupy.cuda.Event(), cupy.cuda.Event()
                cupy.cuda.Device().synchronize()
                delay((1,), (1,), (np.int64(DELAY_CYCLES),))  # the host's part of a launch is not measured
                start.record()
                run()
                end.record()
                end.synchronize()
                if number >= 2:
                    times[name].append(cupy.cuda.get_elapsed_time(start, end))
        return {name: statistics.median(t) for name, t in times.items()}


def measure(row: Row, module: Any, repeats: int) -> dict[str, float]:
    import cupy

    kernel = module[row.kernel]
    names = [p.name for p in kernel.function.params if p.variable is None]
    outputs = [cupy.zeros(size, np.float32) for size in row.outputs]
    inputs = [cupy.random.random(size, dtype=np.float32) for size in row.inputs]
    rest = [cupy.asarray(v) if isinstance(v, np.ndarray) else v for v in row.rest]
    args = (*outputs, *inputs, *rest)
    given = dict(zip(names, args, strict=True))
    out_names, in_names = names[: len(outputs)], names[len(outputs) : len(outputs) + len(inputs)]
    listed = [n.strip() for n in row.listed.split(",")] if row.listed else [*out_names, *in_names]
    adjoints = [
        cupy.zeros_like(given[n]) if n in (*out_names, *in_names) else cupy.zeros(1, np.float32) for n in listed
    ]
    launch = (row.grid, row.block)
    assigned = [n for n in listed if n not in out_names]
    both = kg.gradient(kernel, listed)
    alone = kg.gradient(kernel, listed, primal=False, keep=out_names, assign=assigned)

    def seed() -> None:
        for adjoint in adjoints[: len(outputs)]:
            adjoint.fill(1.0)

    def nothing() -> None:
        pass

    contenders = {
        "primal": (nothing, lambda: kernel[launch](*args)),
        "J": (seed, lambda: both[launch](*args, *adjoints)),
        "R": (seed, lambda: alone[launch](*args, *adjoints)),
    }
    if not row.name.startswith(("tiled", "n-body", "tensor")):
        plain = kg.gradient(kernel, listed, primal=False, keep=out_names, assign=assigned)
        plain.usual = replace(plain.usual, private=frozenset(), exclusive=frozenset())
        contenders["atomics"] = (seed, lambda: atomics_only(plain, launch, args, adjoints))
    found = Timer(repeats)(contenders)
    moved = sum(v.nbytes for v in (*adjoints, *inputs) if v.size > 1)
    return {**found, "floor": moved / BYTES_PER_MS}


def atomics_only(gradient: Any, launch: Any, args: Any, adjoints: Any) -> None:
    variant = gradient.variant()
    gradient.variant_for = lambda *_: variant
    gradient[launch](*args, *adjoints)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the problems")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    module = kg.load(SOURCE)
    print("| kernel | primal ms | J ms | J / primal | R ms | R / primal | target J, R | R floor ms | R atomics ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows(options.scale):
        if options.only not in row.name:
            continue
        try:
            t = measure(row, module, options.repeats)
        except kg.KernelGradError as error:
            print(f"| {row.name} | {type(error).__name__}: {str(error).splitlines()[0]} |")
            continue
        targets = ", ".join("" if x is None else f"{x}x" for x in row.target)
        plain = f"{t['atomics']:.3f}" if "atomics" in t else ""
        print(
            f"| {row.name} | {t['primal']:.3f} | {t['J']:.3f} | {t['J'] / t['primal']:.2f}x | {t['R']:.3f} |"
            f" {t['R'] / t['primal']:.2f}x | {targets} | {t['floor']:.3f} | {plain} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
