"""Atomics between threads that cooperate: bins, compaction, sums of a warp added at once."""

from __future__ import annotations

from .case import Case

CASES = {
    "histogram_by_data": Case("""
        __shared__ double h[8];
        __shared__ int counts[8];
        if (t < 8) { h[t] = 0; counts[t] = 0; }
        __syncthreads();
        int bin = (int)(x[i] * 6) % 8;
        atomicAdd(&h[bin], x[i] * x[i]);
        atomicAdd(&counts[bin], 1);
        __syncthreads();
        if (t < 8 && counts[t] > 0) atomicAdd(&y[t], h[t] * h[t] / counts[t]);
        """),
    "private_histograms": Case(
        """
        extern __shared__ double h[];
        for (int k = t; k < 8; k += blockDim.x) h[k] = 0;
        __syncthreads();
        for (int k = i; k < n; k += blockDim.x * gridDim.x) atomicAdd(&h[(k * k) % 8], sin(x[k]));
        __syncthreads();
        for (int k = t; k < 8; k += blockDim.x) atomicAdd(&y[k], h[k] * x[k]);
        """,
        2,
        16,
        shared=64,
    ),
    "shared_total": Case("""
        __shared__ double total;
        if (t == 0) total = 0;
        __syncthreads();
        atomicAdd(&total, x[i] * x[i]);
        __syncthreads();
        y[i] = x[i] / total;
        """),
    "subtraction": Case(
        """
        __shared__ float left;
        if (t == 0) left = 100.0f;
        __syncthreads();
        atomicAdd(&left, -(float)x[i]);
        __syncthreads();
        y[i] = x[i] * left;
        """,
        step=1e-1,
        tolerance=1e-3,
    ),
    "compaction_in_a_block": Case(
        """
        __shared__ double kept[32];
        __shared__ int count;
        if (t == 0) count = 0;
        __syncthreads();
        if (x[i] > 0.6) kept[atomicAdd(&count, 1)] = x[i] * x[i];
        __syncthreads();
        double product = 1;
        for (int k = 0; k < count; k++) product *= 0.5 + kept[k];
        y[i] = product;
        """,
        tolerance=2e-5,
    ),
    "bin_lists": Case("""
        __shared__ double list[4][32];
        __shared__ int length[4];
        if (t < 4) length[t] = 0;
        __syncthreads();
        int bin = t * 7 % 4, at = atomicAdd(&length[bin], 1);
        list[bin][at] = x[i];
        __syncthreads();
        if (t < 4) {
          double sum = 0;
          for (int k = 0; k < length[t]; k++) sum += list[t][k] * list[t][k];
          y[blockIdx.x * 4 + t] = sum * sum;
        }
        """),
    "largest_integer_as_a_bound": Case("""
        __shared__ int last;
        if (t == 0) last = 0;
        __syncthreads();
        if (x[i] > 0.7) atomicMax(&last, t);
        __syncthreads();
        double sum = 0;
        for (int k = 0; k <= last; k++) sum += x[blockIdx.x * 32 + k] * x[i];
        y[i] = sum;
        """),
    "sum_of_a_warp_added_once": Case(
        """
        double v = i < n ? x[i] * x[i] : 0.0;
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
        if ((t & 31) == 0) atomicAdd(y, v * v);
        """,
        1,
        96,
    ),
    "places_reserved_by_a_warp": Case(
        """
        __shared__ int count;
        __shared__ double kept[96];
        if (t == 0) count = 0;
        __syncthreads();
        bool keep = x[i] > 0.5;
        unsigned chosen = __ballot_sync(0xffffffffu, keep);
        int lane = t & 31, leader = __ffs(chosen) - 1, base = 0;
        if (lane == leader) base = atomicAdd(&count, __popc(chosen));
        base = __shfl_sync(0xffffffffu, base, leader);
        if (keep) kept[base + __popc(chosen & ((1u << lane) - 1))] = x[i] * x[i];
        __syncthreads();
        double sum = 0;
        for (int k = 0; k < count; k++) sum += kept[k] * kept[k];
        y[i] = sum * x[i];
        """,
        1,
        96,
    ),
    "counter_per_block": Case("""
        __shared__ unsigned next;
        if (t == 0) next = 0;
        __syncthreads();
        double sum = 0;
        for (unsigned k = atomicAdd(&next, 1u); k < 40; k = atomicAdd(&next, 1u)) sum += x[k] * x[k] * (k + 1);
        atomicAdd(&y[blockIdx.x], sum);
        """),
    "sums_cleared_in_a_loop": Case("""
        __shared__ double h[4];
        double sum = 0;
        for (int round = 0; round < 3; round++) {
          if (t < 4) h[t] = round * 0.5;
          __syncthreads();
          atomicAdd(&h[(t + round) % 4], x[i] * (round + 1));
          __syncthreads();
          sum += h[t % 4] * h[(t + 1) % 4];
          __syncthreads();
        }
        y[i] = sum;
        """),
    "running_total": Case("""
        __shared__ double total;
        if (t == 0) total = 1;
        __syncthreads();
        double sum = 0;
        for (int round = 0; round < 3; round++) {
          atomicAdd(&total, x[i] * 0.1);
          __syncthreads();
          sum += total * total;
          __syncthreads();
        }
        y[i] = sum;
        """),
}
