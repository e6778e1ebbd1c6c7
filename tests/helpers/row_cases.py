"""Kernels whose rows of threads read the same cells of shared memory: where one thread does several, and where not."""

from __future__ import annotations

from exchange_cases import Case, plane

# Blocks of 8 x 8 threads, whose loop reads B[k][tx]: the same cells for all rows.
CONTROL = {
    "returns_early": plane("sum += mine * B[k][tx]").replace("y[i] =", "if (ty % 3 == 2) return; y[i] ="),
    "its_own_length": plane("{ double v = mine; while (v * v > 0.1 * (1 + ty)) v *= 0.5; sum += v * B[k][tx]; }"),
    "its_own_branch": plane("{ if (ty % 2) sum += sin(mine * B[k][tx]); else sum -= k < ty ? B[k][tx] : mine; }"),
    "a_common_branch": plane("{ if (k % 2 == t % 2) sum += sin(mine * B[k][tx]); else sum -= B[k][tx] * ty; }"),
    "a_loop_inside": plane("{ double b = B[k][tx]; for (int j = k; j < ty; ++j) sum += mine * b * j; }"),
    "a_common_loop_inside": plane("{ for (int j = k; j < 5; ++j) sum += mine * B[k][tx] * j; }"),
    "kept_on_a_tape": plane("sum = sin(sum * B[k][tx] + mine)", bound="n"),
    "a_common_while": plane("{ int j = k; while (j > 0) { sum = sum * 0.5 + mine * B[j][tx]; j /= 2; } }"),
    "an_array_of_its_own": plane("{ double own[3] = {mine, sum, 2}; sum += own[(k + ty) % 3] * B[k][tx]; }"),
    "all_blocks_read_one": plane("sum += mine * B[k][tx] * w[1000] * w[1001 + k]"),
    "its_own_cell_as_well": plane("sum += mine * B[k][tx] * P[ty][tx]", "P[ty][tx] = mine * mine;"),
}
REFUSED = {
    "lanes": plane("sum += __shfl_xor_sync(~0u, mine, 1) * B[k][tx]"),
    "a_barrier_of_its_own": plane("sum += mine * B[k][tx]").replace("t < 3", "t < 3 + (ty >> 10)"),
    "warps_meet": plane("sum += mine * B[k][tx]", "__syncwarp();"),
    "fences": plane("sum += mine * B[k][tx]", "__threadfence_block();"),
    "counted": plane("sum += mine * B[k][tx]", "if (__syncthreads_count(tx < 3) < 0) return;"),
    "nothing_shared": plane("sum += mine * B[(k + ty) % 8][tx]"),
}
ROWS = {name: Case(source, (8, 8), True, True, n=7) for name, source in CONTROL.items()}
