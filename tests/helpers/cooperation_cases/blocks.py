"""What a block computes together: reductions, scans, sorts."""

from __future__ import annotations

from .case import Case, tree

CASES = {
    "largest_with_its_argument": Case(f"""
        __shared__ double s[32];
        __shared__ int at[32];
        s[t] = i < n ? x[i] * (1 + t % 3) : -1.0;
        at[t] = i;
        __syncthreads();
        {tree("{ if (s[t + d] > s[t]) { s[t] = s[t + d]; at[t] = at[t + d]; } }")}
        if (t == 0) y[blockIdx.x] = s[0] * s[0] + sin(x[at[0]]);
        """),
    "smallest_by_fmin": Case(f"""
        __shared__ double s[32];
        s[t] = i < n ? x[i] * x[i] : 1e30;
        __syncthreads();
        {tree("s[t] = fmin(s[t], s[t + d])")}
        y[i] = s[0] * x[i % n];
        """),
    "two_sums_at_once": Case(f"""
        __shared__ double a[32], b[32];
        a[t] = x[i];
        b[t] = x[i] * x[i];
        __syncthreads();
        {tree("{ a[t] += a[t + d]; b[t] += b[t + d]; }")}
        double mean = a[0] / 32, variance = b[0] / 32 - mean * mean;
        y[i] = (x[i] - mean) / sqrt(variance + 0.01);
        """),
    "strided_tree": Case("""
        __shared__ double s[32];
        s[t] = x[i] * x[i];
        for (int d = 1; d < 32; d *= 2) {
          __syncthreads();
          if (t % (2 * d) == 0) s[t] = s[t] + s[t + d] * 0.9;
        }
        __syncthreads();
        y[i] = s[0] * x[i];
        """),
    "tree_of_an_odd_block": Case(
        """
        __shared__ double s[27];
        s[t] = x[i];
        __syncthreads();
        for (int left = blockDim.x; left > 1; ) {
          int half = (left + 1) / 2;
          if (t + half < left) s[t] += s[t + half] * s[t];
          __syncthreads();
          left = half;
        }
        if (t == 0) y[blockIdx.x] = log(s[0]);
        """,
        3,
        27,
    ),
    "block_stride_loop": Case(f"""
        __shared__ double s[32];
        double sum = 0;
        for (int k = t; k < n; k += blockDim.x) sum += x[k] * x[(k + blockIdx.x) % n];
        s[t] = sum;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        for (int k = t; k < 32; k += blockDim.x) y[blockIdx.x * 32 + k] = x[k] / s[0];
        """),
    "grid_stride_loop": Case(
        f"""
        __shared__ double s[8];
        double sum = 0;
        for (int k = i; k < n; k += gridDim.x * blockDim.x) sum += x[k] * x[k];
        s[t] = sum;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        if (t == 0) atomicAdd(&y[0], s[0] * s[0]);
        """,
        3,
        8,
    ),
    "two_level_sum": Case(
        """
        __shared__ double partial[32];
        int lane = t % 32, warp = t / 32;
        double v = i < n ? x[i] * x[i] : 0.0;
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
        if (lane == 0) partial[warp] = v;
        __syncthreads();
        v = t < blockDim.x / 32 ? partial[lane] : 0.0;
        if (warp == 0) for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
        if (t == 0) y[blockIdx.x] = v * v;
        """,
        1,
        96,
    ),
    "two_level_sum_for_all": Case(
        """
        double v = x[i], all = block_sum(v * v);
        double spread = block_sum((v - all / 64) * (v - all / 64));
        y[i] = v / sqrt(spread) + all;
        """,
        1,
        64,
        before="""
        __device__ double warp_sum(double v) {
          for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
          return v;
        }
        __device__ double block_sum(double v) {
          __shared__ double partial[32];
          int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
          v = warp_sum(v);
          if (lane == 0) partial[warp] = v;
          __syncthreads();
          v = lane < (blockDim.x + 31) / 32 ? partial[lane] : 0.0;
          v = warp_sum(v);
          __syncthreads();
          return v;
        }""",
    ),
    "hillis_steele_scan": Case("""
        __shared__ double s[32];
        s[t] = i < n ? x[i] : 0.0;
        __syncthreads();
        for (int d = 1; d < blockDim.x; d *= 2) {
          double left = t >= d ? s[t - d] : 0.0;
          __syncthreads();
          s[t] += left;
          __syncthreads();
        }
        if (i < n) y[i] = s[t] * s[t];
        """),
    "scan_of_products": Case("""
        __shared__ double s[32];
        s[t] = x[i] + 0.4;
        for (int d = 1; d < 32; d *= 2) {
          __syncthreads();
          double v = t >= d ? s[t - d] * s[t] : s[t];
          __syncthreads();
          s[t] = v;
        }
        y[i] = s[t];
        """),
    "blelloch_scan": Case(
        """
        __shared__ double s[64];
        s[2 * t] = x[2 * t];
        s[2 * t + 1] = x[2 * t + 1] * x[2 * t + 1];
        int step = 1;
        for (int d = 32; d > 0; d >>= 1) {
          __syncthreads();
          if (t < d) s[step * (2 * t + 2) - 1] += s[step * (2 * t + 1) - 1];
          step *= 2;
        }
        if (t == 0) s[63] = 0;
        for (int d = 1; d < 64; d *= 2) {
          step >>= 1;
          __syncthreads();
          if (t < d) {
            int left = step * (2 * t + 1) - 1, right = step * (2 * t + 2) - 1;
            double v = s[left];
            s[left] = s[right];
            s[right] += v;
          }
        }
        __syncthreads();
        y[2 * t] = s[2 * t] * x[t];
        y[2 * t + 1] = s[2 * t + 1] * s[2 * t + 1];
        """,
        1,
    ),
    "segmented_scan": Case("""
        __shared__ double s[32];
        __shared__ int first[32];
        s[t] = x[i];
        first[t] = t % 5 == 0;
        __syncthreads();
        for (int d = 1; d < 32; d *= 2) {
          double v = s[t];
          int f = first[t];
          if (t >= d && !f) { v = v + s[t - d]; f = first[t - d]; }
          __syncthreads();
          s[t] = v;
          first[t] = f;
          __syncthreads();
        }
        y[i] = s[t] * s[t];
        """),
    "bitonic_sort": Case("""
        __shared__ double keys[32], values[32];
        keys[t] = x[i];
        values[t] = x[(i + 13) % n] * x[i];
        __syncthreads();
        for (int size = 2; size <= 32; size *= 2)
          for (int step = size / 2; step > 0; step /= 2) {
            int other = t ^ step;
            if (other > t) {
              bool up = (t & size) == 0;
              if ((keys[t] > keys[other]) == up) {
                double key = keys[t], value = values[t];
                keys[t] = keys[other]; values[t] = values[other];
                keys[other] = key; values[other] = value;
              }
            }
            __syncthreads();
          }
        y[i] = keys[t] * (t + 1) + values[t] * values[t];
        """),
    "odd_even_sort": Case(
        """
        __shared__ double s[8];
        s[t] = x[i];
        __syncthreads();
        for (int round = 0; round < 8; round++) {
          if (t % 2 == round % 2 && t + 1 < 8) {
            double a = s[t], b = s[t + 1];
            s[t] = fmin(a, b);
            s[t + 1] = fmax(a, b);
          }
          __syncthreads();
        }
        y[i] = s[t] * s[t] * (t + 1);
        """,
        2,
        8,
    ),
    "sort_by_rank": Case("""
        __shared__ double s[32], sorted[32];
        s[t] = x[i];
        __syncthreads();
        int rank = 0;
        for (int k = 0; k < 32; k++) rank += s[k] < s[t];
        sorted[rank] = s[t] * s[t];
        __syncthreads();
        y[i] = sorted[t] * (t + 1);
        """),
}
