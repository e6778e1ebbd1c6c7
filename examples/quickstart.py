"""A worked example: heat spreads over a plate, computed by a CUDA kernel (heat.cu) on the CPU, or on a GPU if there is
one, and checked against NumPy. `make demo` runs it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import kernelgrad as kg

TILE = 16  # as in heat.cu
ALPHA = 0.2
SHADES = " .:-=+*#%@"
LETTERS = {
    "K": ("#...#", "#..#.", "#.#..", "##...", "#.#..", "#..#.", "#...#"),
    "G": (".####", "#....", "#....", "#.###", "#...#", "#...#", ".####"),
}


def main() -> None:
    options = parse_options()
    gpu = None if options.cpu else find_gpu()
    plate = hot_letters(options.size)

    start = time.perf_counter()
    kernel = kg.load(Path(__file__).with_name("heat.cu"))["heat"]
    print(f"heat.cu: {kernel!r}\n")

    heated, first, rest = simulate(kernel, plate, options.steps, gpu)
    print(picture(plate, "at the start"), picture(heated, f"after {options.steps} steps"), sep="\n")

    cells = plate.size * (options.steps - 1)
    print(f"ran on    {'the CPU' if gpu is None else 'the GPU, through ' + gpu.__name__}")
    print(f"first     {first - start:.3f} s from source to the first step")
    print(f"then      {rest:.3f} s for {options.steps - 1} steps: {cells / rest / 1e6:.0f} million cells per second")
    check(plate, heated, options.steps)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=480, help="the plate's height; it is twice as wide")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    return parser.parse_args()


def find_gpu() -> ModuleType | None:
    """CuPy or PyTorch, if one is installed and sees a GPU."""
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() > 0:
            return cupy
    except Exception:  # not installed, or no driver
        pass
    try:
        import torch

        return torch if torch.cuda.is_available() else None
    except ImportError:
        return None


def simulate(kernel: Any, plate: Any, steps: int, gpu: ModuleType | None) -> tuple[Any, float, float]:
    """The plate after `steps`, when the first step was done, and how long the others took."""
    height, width = plate.shape
    now, following = to_device(plate, gpu), to_device(np.zeros_like(plate), gpu)
    launch = kernel[(-(-width // TILE), -(-height // TILE)), (TILE, TILE)]

    launch(following, now, ALPHA, width, height)
    wait(gpu)
    first = time.perf_counter()
    for _ in range(steps - 1):
        now, following = following, now
        launch(following, now, ALPHA, width, height)
    wait(gpu)
    return to_host(following), first, time.perf_counter() - first


def to_device(array: Any, gpu: ModuleType | None) -> Any:
    if gpu is None:
        return array.copy()
    return gpu.asarray(array) if gpu.__name__ == "cupy" else gpu.from_numpy(array).cuda()


def to_host(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return array
    return array.get() if hasattr(array, "get") else array.cpu().numpy()


def wait(gpu: ModuleType | None) -> None:
    """Launches on a GPU return at once."""
    if gpu is not None:
        gpu.cuda.Device().synchronize() if gpu.__name__ == "cupy" else gpu.cuda.synchronize()


def hot_letters(size: int) -> Any:
    """A cold plate with two hot letters on it, twice as wide as high."""
    rows = ["." * 14, *(f"..{k}{'.'}{g}." for k, g in zip(LETTERS["K"], LETTERS["G"], strict=True)), "." * 14]
    coarse = np.array([[c == "#" for c in row] for row in rows], np.float32)
    y = np.arange(size) * coarse.shape[0] // size
    x = np.arange(2 * size) * coarse.shape[1] // (2 * size)
    return np.ascontiguousarray(coarse[np.ix_(y, x)])


def check(plate: Any, heated: Any, steps: int) -> None:
    expected = plate
    for _ in range(steps):
        p = np.pad(expected, 1, mode="edge")
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        expected = expected + np.float32(ALPHA) * (around - 4 * expected)
    error = float(np.abs(heated - expected).max())
    print(f"checked   against NumPy: the largest difference is {error:.1e}")
    print(f"          heat on the plate: {plate.sum(dtype=float):.1f} before, {heated.sum(dtype=float):.1f} after")
    if not error < 1e-4:
        raise SystemExit("the kernel's answer is wrong")


def picture(plate: Any, title: str, columns: int = 72, rows: int = 18) -> str:
    """The plate in characters, the hotter the denser."""
    y = ((np.arange(rows) + 0.5) * plate.shape[0] / rows).astype(int)
    x = ((np.arange(columns) + 0.5) * plate.shape[1] / columns).astype(int)
    levels = np.clip(plate[np.ix_(y, x)] * len(SHADES), 0, len(SHADES) - 1).astype(int)
    lines = ["".join(SHADES[level] for level in line) for line in levels]
    return "\n".join([f"+{f' {title} ':-^{columns}}+", *(f"|{line}|" for line in lines), f"+{'-' * columns}+"])


if __name__ == "__main__":
    main()
