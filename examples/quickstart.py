"""A worked example: heat spreads over a plate, computed by a CUDA kernel (heat.cu) on the CPU, or on a GPU if there is
one, and checked against NumPy. Then the kernel's gradient leads back, from the blurred plate to what was on it at
first. `make demo` runs it."""

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

    find_the_start(kernel, hot_letters(options.small), options.rounds, gpu)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=480, help="the plate's height; it is twice as wide")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--small", type=int, default=96, help="the height of the plate whose start is looked for")
    parser.add_argument("--rounds", type=int, default=40, help="how often its guess is improved")
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


def find_the_start(kernel: Any, plate: Any, rounds: int, gpu: ModuleType | None, steps: int = 60) -> None:
    """Guesses the plate from what is left of it after `steps`, by descent along the gradient, with momentum."""
    blur = Blur(kernel, plate, steps, gpu)
    seen = blur(to_device(plate, gpu))
    guess = before = seen
    start = time.perf_counter()
    for k in range(rounds):
        ahead = guess + k / (k + 3) * (guess - before)
        off = blur(ahead) - seen
        guess, before = (ahead - blur.gradient(off)).clip(0, 1), guess
    took = time.perf_counter() - start

    print()
    print(picture(to_host(seen), f"seen: {steps} steps after the start"), picture(to_host(guess), "found"), sep="\n")
    first, last = (float(abs(to_host(each) - plate).mean()) for each in (seen, guess))
    print(f"found     in {took:.1f} s, with {rounds * steps} launches of heat and as many of its gradient")
    print(f"          off by {first:.3f} on average at first, by {last:.3f} at the end")
    check_gradient(blur, off, ahead, gpu)


class Blur:
    """`steps` launches of the kernel, and of its gradient."""

    def __init__(self, kernel: Any, plate: Any, steps: int, gpu: ModuleType | None) -> None:
        height, width = plate.shape
        launch = (-(-width // TILE), -(-height // TILE)), (TILE, TILE)
        backward = kg.gradient(kernel, "next, now", primal=False, keep="next", assign="now")
        self.forward, self.backward = kernel[launch], backward[launch]
        self.spare = [to_device(np.zeros_like(plate), gpu) for _ in range(2)]
        self.steps, self.rest = steps, (ALPHA, width, height)

    def __call__(self, plate: Any) -> Any:
        now = plate
        for _ in range(self.steps):
            following = now * 0
            self.forward(following, now, *self.rest)
            now = following
        return now

    def gradient(self, d_next: Any) -> Any:
        """What the start owes to `d_next`, the adjoint of the end. The steps are linear: no values are read."""
        for _ in range(self.steps):
            d_now = d_next * 0
            self.backward(*self.spare, *self.rest, d_next, d_now)
            d_next = d_now
        return d_next


def check_gradient(blur: Blur, off: Any, ahead: Any, gpu: ModuleType | None) -> None:
    """<off, J d> against <transposed J off, d>, for a direction d."""
    direction = to_device(np.random.default_rng(1).standard_normal(ahead.shape).astype(np.float32), gpu)
    forward = float((off * blur(direction)).sum())
    reverse = float((blur.gradient(off) * direction).sum())
    error = abs(forward - reverse) / float(abs(off * direction).sum())
    print(f"checked   against the kernel along a random direction: they differ by {error:.1e}")
    if not error < 1e-5:
        raise SystemExit("the gradient is wrong")


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
