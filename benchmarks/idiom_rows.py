"""The kernels of benchmarks/idioms.py: what people compute, written as different people write it, and their sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "kernels" / "idioms"


@dataclass(frozen=True)
class Idiom:
    """A kernel's parameters are its outputs, its inputs, and the `rest`. `aim`: R in terms of the primal. `adds`: the
    outputs are added to. `needs`: inputs that an adjoint must read."""

    family: str
    kernel: str
    file: str
    grid: Any
    block: Any
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    rest: tuple[Any, ...]
    aim: float
    shared: int = 0
    adds: bool = False
    needs: tuple[int, ...] = (0,)


def _rows(rows: int, n: int) -> list[Idiom]:
    cells = rows * n

    def row(
        family: str, kernel: str, grid: int, block: Any, weights: int, rest: tuple[Any, ...], shared: int = 0
    ) -> Idiom:
        inputs = (cells, *(n,) * weights)
        return Idiom(
            family, kernel, "rows.cu", grid, block, (cells,), inputs, rest, 1.3, shared, needs=(0, 1)[: weights + 1]
        )

    return [
        row("softmax", "softmax_block_tree", rows, 256, 0, (n,), 1024),
        row("softmax", "softmax_block_shuffles", rows, 256, 0, (rows, n)),
        row("softmax", "softmax_warp", -(-rows // 8), (32, 8), 0, (rows, n)),
        row("softmax", "softmax_warp_flat", -(-rows // 8), 256, 0, (rows, n)),
        row("layer norm", "layer_norm_block", rows, 256, 2, (n,)),
        row("layer norm", "layer_norm_warp", -(-rows // 8), 256, 2, (rows, n)),
        row("RMS norm", "rms_norm_block", rows, 256, 1, (n,)),
        row("RMS norm", "rms_norm_warp", rows // 8, (32, 8), 1, (n,)),
    ]


def _cross_entropy(rows: int, n: int) -> list[Idiom]:
    label = np.random.default_rng(2).integers(0, n, rows, dtype=np.int32)
    return [
        Idiom("cross entropy", kernel, "rows.cu", rows, 256, (rows,), (rows * n,), (label, n), 1.3)
        for kernel in ("cross_entropy_block", "cross_entropy_tree")
    ]


def _maps(n: int) -> list[Idiom]:
    flat, some = n // 256, max(1, min(n // 256, 1056))
    one = ((n,), (n,))
    return [
        Idiom("elementwise", "gelu_one", "maps.cu", flat, 256, *one, (n,), 1.5),
        Idiom("elementwise", "gelu_stride", "maps.cu", some, 256, *one, (n,), 1.5),
        Idiom("elementwise", "gelu_while", "maps.cu", some, 256, *one, (n,), 1.5),
        Idiom("elementwise", "gelu_four", "maps.cu", -(-n // 1024), 256, *one, (n,), 1.5),
        Idiom("elementwise", "bias_gelu", "maps.cu", some, 256, (n,), (n, 256), (n, 256), 1.5, needs=(0, 1)),
    ]


def _moves(n: int) -> list[Idiom]:
    side = int(n**0.5) // 32 * 32
    extents = (n // 4096, 64, 64)
    flat, moved = n // 256, ((n,), (n,))
    square = ((side * side,), (side * side,))
    return [
        Idiom("permute", "permute_021", "maps.cu", flat, 256, *moved, extents, 1.1, needs=()),
        Idiom("permute", "permute_out", "maps.cu", flat, 256, *moved, extents, 1.1, needs=()),
        Idiom(
            "transpose", "transpose_plain", "maps.cu", -(-side * side // 256), 256, *square, (side, side), 1.1, needs=()
        ),
        Idiom(
            "transpose", "transpose_tile", "maps.cu", (side // 32, side // 32), (32, 8), *square, (side,), 1.1, needs=()
        ),
    ]


def _pools_and_losses(n: int) -> list[Idiom]:
    planes = max(1, n // (256 * 256))
    pooled = ((planes * 128 * 128,), (planes * 256 * 256,))
    some = max(1, min(n // 256, 1056))
    return [
        Idiom("max pooling", "max_pool_flat", "maps.cu", planes * 64, 256, *pooled, (planes, 256, 256), 1.6),
        Idiom("max pooling", "max_pool_grid", "maps.cu", (4, 16, planes), (32, 8), *pooled, (256, 256), 1.6),
        Idiom("loss", "mse_tree", "maps.cu", some, 256, (1,), (n, n), (n,), 2.0, adds=True, needs=(0, 1)),
        Idiom("loss", "mse_shuffles", "maps.cu", n // 256, 256, (1,), (n, n), (n,), 2.0, adds=True, needs=(0, 1)),
    ]


def _embeddings(tokens: int, width: int, words: int) -> list[Idiom]:
    token = np.random.default_rng(3).integers(0, words, tokens, dtype=np.int32)
    cells = ((tokens * width,), (words * width,))
    return [
        Idiom("embedding", "embedding_block", "maps.cu", tokens, 256, *cells, (token, width), 1.0, needs=()),
        Idiom(
            "embedding",
            "embedding_flat",
            "maps.cu",
            -(-tokens * width // 256),
            256,
            *cells,
            (token, tokens, width),
            1.0,
            needs=(),
        ),
    ]


def _products(n: int) -> list[Idiom]:
    cells, tiles = ((n * n,), (n * n,) * 2), n // 32

    def row(kernel: str, grid: Any, block: Any, rest: tuple[Any, ...] = (n,)) -> Idiom:
        return Idiom("product", kernel, "products.cu", grid, block, *cells, rest, 2.0, needs=(0, 1))

    return [
        row("matmul_padded", (tiles, tiles), (32, 32)),
        row("matmul_flat", (tiles, tiles), 1024),
        row("matmul_guarded", (n // 16, n // 16), (16, 16), (n, n, n)),
        row("matmul_registers", (n // 64, n // 64), 256),
        row("matmul_plain", (n // 16, n // 16), (16, 16)),
    ]


def _layers(n: int) -> list[Idiom]:
    some, flat = max(1, min(n // 256, 1056)), n // 256
    return [
        Idiom(
            "dense layer",
            "dense_thread",
            "layers.cu",
            flat,
            256,
            (n,),
            (n * 16, 256, 16, 16),
            (n,),
            2.0,
            needs=(0, 1, 2, 3),
        ),
        Idiom(
            "dense layer",
            "dense_stride",
            "layers.cu",
            some,
            256,
            (n,),
            (n * 16, 256, 16, 16),
            (n,),
            2.0,
            needs=(0, 1, 2, 3),
        ),
        Idiom(
            "dense layer",
            "dense_columns",
            "layers.cu",
            flat,
            256,
            (n * 16,),
            (n * 16, 256, 16),
            (n, 16, 16),
            2.0,
            needs=(0, 1, 2),
        ),
        Idiom("paths", "paths", "layers.cu", flat, 256, (n,), (n * 16, 4), (n, 16), 2.0, needs=(0, 1)),
        # 1024 places: products with them are exact, and doubles fall between the same nodes as floats
        Idiom("lookup", "table_lookup", "layers.cu", flat, 256, (n,), (n, 1025), (n, 1025), 2.0, needs=(0, 1)),
    ]


def _convolutions(side: int, channels: int) -> list[Idiom]:
    area, weights = side * side, channels * channels * 9
    inner = (side - 2) * (side - 2)
    tiles = (-(-side // 32), -(-side // 8), channels)
    shape = (channels, channels, side, side)
    one = 8 * side
    return [
        Idiom(
            "convolution",
            "conv2d_blocks",
            "layers.cu",
            tiles,
            (32, 8),
            (channels * area,),
            (channels * area, weights),
            shape,
            1.5,
            needs=(0, 1),
        ),
        Idiom(
            "convolution",
            "conv2d_flat",
            "layers.cu",
            -(-channels * inner // 256),
            256,
            (channels * inner,),
            (channels * area, weights, channels),
            shape,
            1.5,
            needs=(0, 1),
        ),
        Idiom(
            "convolution",
            "conv2d_one_channel",
            "layers.cu",
            (one // 16, one // 16),
            (16, 16),
            (one * one,),
            (one * one, 9),
            (one, one),
            1.5,
            needs=(0, 1),
        ),
    ]


def _neighbours(n: int) -> list[Idiom]:
    side = int(n**0.5) // 32 * 32
    flat = n // 256
    edge = max(32, round(n ** (1 / 3)) // 32 * 32)
    return [
        Idiom(
            "stencil",
            "stencil_halo",
            "neighbours.cu",
            (side // 32, side // 16),
            (32, 16),
            (side * side,),
            (side * side,),
            (side,),
            1.3,
            needs=(),
        ),
        Idiom("stencil", "stencil_halo_ifs", "neighbours.cu", flat, 256, (n,), (n,), (n,), 1.3, needs=()),
        Idiom("stencil", "stencil_halo_line", "neighbours.cu", flat, 256, (n,), (n,), (n,), 1.3, 262 * 4, needs=()),
        Idiom(
            "stencil",
            "stencil_halo_space",
            "neighbours.cu",
            (edge // 32, edge // 4, edge // 4),
            (32, 4, 4),
            (edge**3,),
            (edge**3,),
            (edge,),
            1.3,
            needs=(),
        ),
        Idiom(
            "convolution",
            "conv2d_halo",
            "neighbours.cu",
            (side // 32, side // 16),
            (32, 16),
            (side * side,),
            (side * side, 25),
            (side,),
            1.5,
            needs=(0, 1),
        ),
        Idiom("scan", "scan_double_buffer", "neighbours.cu", flat, 256, (n,), (n,), (n,), 1.3, needs=()),
        Idiom("scan", "scan_in_place", "neighbours.cu", flat, 256, (n,), (n,), (n,), 1.3, 1024, needs=()),
    ]


def _lists(n: int) -> list[Idiom]:
    random = np.random.default_rng(4)
    start = np.arange(0, n * 16 + 1, 16, dtype=np.int32)
    column = random.integers(0, n, n * 16, dtype=np.int32)
    near = ((np.arange(n)[None, :] + random.integers(1, 64, (32, n))) % n).astype(np.int32).ravel()
    key = random.integers(0, 256, n * 16, dtype=np.int32)
    side = int((n / 4) ** 0.5)
    some = max(1, min(n * 16 // 256, 1056))
    row = partial(Idiom, file="neighbours.cu", block=256)
    sparse = partial(
        row, "sparse rows", outputs=(n,), inputs=(n * 16, n), rest=(start, column, n), aim=2.6, needs=(0, 1)
    )
    counts = partial(row, "histogram", outputs=(256,), inputs=(n * 16,), rest=(key, n * 16), aim=2.5, adds=True)
    planes = 8 * side * side
    return [
        sparse("csr_thread", grid=n // 256),
        sparse("csr_warp", grid=n // 8),
        row("neighbours", "pairs", grid=n // 256, outputs=(n,), inputs=(n,) * 3, rest=(near, n, 32), aim=2.5,
            needs=(0, 1, 2)),
        row("bilinear", "bilinear", grid=n // 256, outputs=(n * 8,), inputs=(planes, 2 * n), rest=(n, 8, side), aim=4.7,
            needs=(0, 1)),
        counts("weighted_histogram", grid=some, needs=()),
        counts("histogram_global", grid=n // 16),
    ]  # fmt: skip


def _attention(rows: int, n: int) -> list[Idiom]:
    def row(kernel: str, width: int = 32) -> Idiom:
        inputs = (rows * width, n * width, n * width)
        return Idiom(
            "attention",
            kernel,
            "attention.cu",
            -(-rows // 128),
            128,
            inputs[:1],
            inputs,
            (rows, n),
            1.5,
            needs=(0, 1, 2),
        )

    return [row("attention_32"), row("attention_64", 64), row("attention_twice"), row("attention_tiles")]


def _segments(n: int) -> list[Idiom]:
    length = np.random.default_rng(6).integers(0, 33, n // 16)
    start = np.concatenate([[0], np.minimum(np.cumsum(length), n)]).astype(np.int32)
    start[-1] = n
    segment = np.repeat(np.arange(n // 16, dtype=np.int32), np.diff(start))
    rows, some = n // 16, max(1, min(n // 256, 1056))
    row = partial(Idiom, file="segments.cu", block=256, aim=2.5, inputs=(n,))
    return [
        row("segments", "segments_thread", grid=-(-rows // 256), outputs=(rows,), rest=(start, rows)),
        row("segments", "segments_atomic", grid=some, outputs=(rows,), rest=(segment, n), adds=True),
        row("sorting", "sort_block", grid=n // 512, outputs=(n,), rest=()),
    ]


# By family: a kernel of kernels/idioms_by_hand.cu, its arguments by name (`d_x` is the adjoint of x; a family's kernels
# call them by the first one's names), and its grid and block.
ByHand = tuple[str, str, Callable[[Idiom], tuple[Any, Any]]]
BY_HAND: dict[str, ByHand] = {
    "softmax": ("softmax", "d_x d_y x rows n", lambda idiom: (-(-idiom.outputs[0] // idiom.rest[-1] // 8), (32, 8))),
    "elementwise": ("gelu", "d_x d_y x n", lambda idiom: (-(-idiom.rest[0] // 256), 256)),
    "permute": ("permute", "d_x d_y A B C", lambda idiom: (idiom.grid, idiom.block)),
    "transpose": ("transpose", "d_x d_y n", lambda idiom: (_tiles(idiom), (32, 8))),
    "max pooling": ("max_pool", "d_x d_y x h w", lambda idiom: ((4, 16, idiom.outputs[0] >> 14), (32, 8))),
    "loss": ("mse", "d_x d_target d_loss x target n", lambda idiom: (-(-idiom.rest[0] // 256), 256)),
}


def _tiles(idiom: Idiom) -> tuple[int, int]:
    return (idiom.rest[-1] // 32, idiom.rest[-1] // 32)


def idioms(scale: float) -> list[Idiom]:
    """All of them; `scale` shrinks the sizes."""

    def shrunk(size: int, dimensions: float, multiple: int) -> int:
        return max(multiple, int(size * scale ** (1 / dimensions)) // multiple * multiple)

    n = shrunk(64 << 20, 1, 4096)
    return [
        *_rows(shrunk(65536, 1, 8), 1024 if scale > 0.01 else 300),
        *_cross_entropy(shrunk(4096, 2, 8), shrunk(50257, 2, 501)),
        *_maps(n),
        *_moves(n),
        *_pools_and_losses(n),
        *_embeddings(shrunk(65536, 1, 8), 1024 if scale > 0.01 else 96, shrunk(50304, 1, 16)),
        *_products(shrunk(2048, 3, 64)),
        *_layers(shrunk(4 << 20, 1, 1024)),
        *_convolutions(shrunk(512, 2, 16), 32 if scale > 0.01 else 3),
        *_neighbours(n),
        *_lists(shrunk(4 << 20, 1, 1024)),
        *_attention(shrunk(65536, 2, 128), shrunk(1024, 2, 8)),
        *_segments(shrunk(16 << 20, 1, 1024)),
    ]
