"""Warps: shuffles of every kind and width, votes, reductions of integers, partial warps."""

from __future__ import annotations

from .case import Case

CASES = {
    "every_width": Case("""
        double v = x[i];
        for (int width = 2; width <= 32; width *= 2) {
          double down = __shfl_down_sync(~0u, v * v, 1, width), up = __shfl_up_sync(~0u, v, width / 2, width);
          double other = __shfl_xor_sync(~0u, v, width - 1, width), one = __shfl_sync(~0u, v, width + 1, width);
          v = 0.5 * v + 0.1 * down + 0.2 * up + 0.1 * other * one;
        }
        y[i] = v;
        """),
    "constant_width": Case("""
        double v = x[i], down = __shfl_down_sync(~0u, v, 3, 8), up = __shfl_up_sync(~0u, v * v, 5, 16);
        y[i] = down * up + __shfl_xor_sync(~0u, v, 6, 4) * __shfl_sync(~0u, v, 3, 2);
        """),
    "permuted_lanes": Case("""
        double v = x[i] * x[i];
        double a = __shfl_sync(0xffffffffu, v, (t * 7 + 3) & 31);
        double b = __shfl_sync(0xffffffffu, a * v, (n - t) & 31);
        y[i] = a * b;
        """),
    "lanes_that_are_read_by_many": Case("""
        double v = x[i];
        double a = __shfl_sync(0xffffffffu, v, t / 8);
        double b = __shfl_sync(0xffffffffu, v * v, (int)(x[i] * 20) & 31);
        y[i] = a * b * v;
        """),
    "lanes_beyond_the_warp": Case("""
        double v = x[i];
        double a = __shfl_sync(0xffffffffu, v, t + 40), b = __shfl_down_sync(0xffffffffu, v, 20);
        double c = __shfl_up_sync(0xffffffffu, v, 9), d = __shfl_xor_sync(0xffffffffu, v, 12, 8);
        y[i] = a * b + c * d * d;
        """),
    "floats": Case(
        """
        float v = x[i];
        for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
        y[i] = x[i] * __shfl_sync(0xffffffffu, v, 3);
        """,
        step=1e-2,
        tolerance=1e-4,
    ),
    "integers": Case("""
        int from = __shfl_sync(0xffffffffu, t * 5 % 32, 31 - t);
        unsigned sum = __shfl_down_sync(0xffffffffu, (unsigned)t, 2) + __shfl_xor_sync(0xffffffffu, (long long)t, 1);
        y[i] = x[blockIdx.x * 32 + from] * x[i] * sum;
        """),
    "inclusive_scan": Case(
        """
        double v = i < n ? x[i] : 0.0;
        for (int d = 1; d < 32; d *= 2) {
          double left = __shfl_up_sync(0xffffffffu, v, d);
          if ((t & 31) >= d) v += left * (1 + 0.01 * v);
        }
        y[i] = v * v;
        """,
        1,
        96,
    ),
    "exclusive_scan": Case("""
        double v = x[i], before = v;
        for (int d = 1; d < 32; d <<= 1) { double left = __shfl_up_sync(~0u, before, d); if (t >= d) before += left; }
        before = __shfl_up_sync(~0u, before, 1);
        if (t == 0) before = 0;
        y[i] = before * v;
        """),
    "scan_in_a_partial_warp": Case(
        """
        unsigned mask = __ballot_sync(0xfffffu, i < n);
        if (i < n) {
          double v = x[i];
          for (int d = 1; d < 20; d *= 2) {
            double left = __shfl_up_sync(mask, v, d);
            if (t >= d) v += left * v;
          }
          y[i] = log(v);
        }
        """,
        4,
        20,
    ),
    "sum_in_a_partial_warp": Case(
        """
        unsigned mask = __activemask();
        double v = x[i] * x[i];
        for (int d = 16; d > 0; d /= 2) {
          double other = __shfl_down_sync(mask, v, d);
          if ((t & 31) + d < 12) v += other;
        }
        if (t == 0) y[blockIdx.x] = v * v;
        """,
        3,
        12,
    ),
    "half_a_warp_each": Case("""
        double v = x[i];
        if (t < 16) v *= __shfl_xor_sync(0xffffu, v, 5);
        else v += __shfl_down_sync(0xffff0000u, v * v, 3, 16);
        y[i] = v * v;
        """),
    "rows_of_a_two_dimensional_block": Case(
        """
        int lane = threadIdx.y * 8 + t, at = blockIdx.x * 32 + lane;
        double v = x[at];
        for (int d = 4; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v * x[at], d, 8);
        y[at] = v;
        """,
        block=(8, 4),
    ),
    "shuffles_in_a_loop": Case(
        """
        double v = x[i], sum = 0;
        for (int k = 0; k < n; k++) {
          double other = __shfl_sync(0xffffffffu, v, (t + k) & 31);
          sum += other * other * v;
          v = 0.5 * v + 0.2 * sum * other;
        }
        y[i] = sum;
        """,
        n=6,
    ),
    "votes": Case("""
        double v = x[i];
        unsigned larger = __ballot_sync(0xffffffffu, v > 0.6);
        int rank = __popc(larger & ((1u << t) - 1));
        if (__any_sync(0xffffffffu, v > 1.1)) v *= 2;
        if (__all_sync(0xffffffffu, v > 0.3)) v += 1;
        if (larger >> t & 1) y[blockIdx.x * 32 + rank] = v * v * __popc(larger);
        """),
    "reductions_of_integers": Case("""
        int key = (int)(x[i] * 100);
        int sum = __reduce_add_sync(0xffffffffu, t % 4), top = __reduce_max_sync(0xffffffffu, key);
        unsigned low = __reduce_min_sync(0xffffffffu, (unsigned)key), bits = __reduce_or_sync(~0u, 1u << (t % 3));
        y[i] = x[i] * x[i] * sum + (key == top ? x[i] : 0.0) * bits + (key == (int)low ? sin(x[i]) : 0.0);
        """),
    "matches": Case("""
        unsigned same = __match_any_sync(0xffffffffu, t % 5);
        int leader = __ffs(same) - 1;
        y[i] = x[i] * __shfl_sync(0xffffffffu, x[i] * x[i], leader) * __popc(same);
        """),
    "shared_memory_of_a_warp": Case("""
        __shared__ double s[32];
        s[t] = x[i] * x[i];
        __syncwarp();
        double v = s[t ^ 1] * s[t];
        __syncwarp();
        s[t] = v;
        __syncwarp();
        for (int d = 16; d > 0; d /= 2) { if (t < d) s[t] += s[t + d] * s[t]; __syncwarp(); }
        y[i] = s[0] + v;
        """),
    "shared_memory_of_several_warps": Case(
        """
        __shared__ double s[3][32];
        double* mine = s[t / 32];
        int lane = t % 32;
        mine[lane] = x[i];
        __syncwarp();
        double v = mine[31 - lane] * mine[lane];
        __syncthreads();
        double w = v * s[(t / 32 + 1) % 3][lane];
        __syncthreads();
        mine[lane] = w;
        __syncwarp();
        y[i] = mine[(lane + 1) % 32] * w;
        """,
        1,
        96,
    ),
    "largest_by_butterfly_with_its_lane": Case("""
        double v = x[i];
        int at = t;
        for (int d = 16; d > 0; d /= 2) {
          double other = __shfl_xor_sync(0xffffffffu, v, d);
          int there = __shfl_xor_sync(0xffffffffu, at, d);
          if (other > v) { v = other; at = there; }
        }
        y[i] = v * v * x[i] + at;
        """),
    "sort_in_a_warp": Case("""
        double v = x[i];
        for (int size = 2; size <= 32; size *= 2)
          for (int step = size / 2; step > 0; step /= 2) {
            double other = __shfl_xor_sync(0xffffffffu, v, step);
            bool low = (t & step) == 0, up = (t & size) == 0;
            v = low == up ? fmin(v, other) : fmax(v, other);
          }
        y[i] = v * v * (t + 1);
        """),
    "barrier_of_some_lanes": Case("""
        __shared__ double s[32];
        if (t < 8) {
          s[t] = x[i] * x[i];
          __syncwarp(0xffu);
          double v = s[7 - t];
          __syncwarp(0xffu);
          s[t] = v * x[i];
          __syncwarp(0xffu);
          y[i] = s[(t + 1) % 8];
        }
        """),
    "full_and_partial_warp": Case(
        """
        unsigned mask = __activemask();
        double v = x[i];
        int lane = t % 32, lanes = t < 32 ? 32 : 8;
        for (int d = 16; d > 0; d /= 2) {
          double other = __shfl_down_sync(mask, v * v, d);
          if (lane + d < lanes) v += 0.2 * other;
        }
        y[i] = v;
        """,
        2,
        40,
    ),
    "early_return_before_shuffles": Case("""
        if (i >= n) return;
        double v = x[i];
        for (int d = 16; d > 0; d /= 2) {
          double other = __shfl_down_sync(0xffffffffu, v, d);
          if (i + d < n && t + d < 32) v += other;
        }
        y[i] = v * v;
        """),
    "halves_of_lanes": Case(
        """
        __half one = __shfl_xor_sync(0xffffffffu, __float2half((float)x[i]), 3);
        __half2 two = __shfl_down_sync(0xffffffffu, __floats2half2_rn((float)x[i], 2 * (float)x[i]), 5);
        y[i] = x[i] * (double)__half2float(one) + __low2float(two) * __high2float(two);
        """,
        before="#include <cuda_fp16.h>",
        step=0.25,
        tolerance=5e-2,
    ),
}
