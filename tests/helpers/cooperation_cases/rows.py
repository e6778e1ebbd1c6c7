"""Rows by blocks and by warps: normalisations, softmax, attention, dot products."""

from __future__ import annotations

from .case import Case, tree

_WARP_SUM = """
        __device__ double warp_sum(double v) {
          for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
          return v;
        }
        __device__ double warp_max(double v) {
          for (int d = 16; d > 0; d /= 2) v = fmax(v, __shfl_xor_sync(0xffffffffu, v, d));
          return v;
        }"""

CASES = {
    "layer_norm": Case(
        f"""
        __shared__ double s[16];
        const double *weight = x + 64, *bias = x + 80;
        double v = x[i];
        s[t] = v;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        double mean = s[0] / 16;
        __syncthreads();
        s[t] = (v - mean) * (v - mean);
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        double scale = rsqrt(s[0] / 16 + 1e-5);
        y[i] = (v - mean) * scale * weight[t] + bias[t];
        """,
        4,
        16,
    ),
    "root_mean_square_norm": Case(
        f"""
        __shared__ double s[16];
        double v = x[i], square = 0;
        for (int k = t; k < 32; k += 16) square += x[blockIdx.x * 32 + k] * x[blockIdx.x * 32 + k];
        s[t] = square;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        if (t == 0) s[0] = rsqrt(s[0] / 32 + 1e-5);
        __syncthreads();
        y[i] = v * s[0] * x[80 + t];
        """,
        2,
        16,
    ),
    "softmax_of_long_rows": Case(
        f"""
        __shared__ double s[8];
        const double* row = x + blockIdx.x * n;
        double largest = -1e30;
        for (int k = t; k < n; k += 8) largest = fmax(largest, row[k]);
        s[t] = largest;
        __syncthreads();
        {tree("s[t] = fmax(s[t], s[t + d])")}
        largest = s[0];
        __syncthreads();
        double sum = 0;
        for (int k = t; k < n; k += 8) sum += exp(row[k] - largest);
        s[t] = sum;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        for (int k = t; k < n; k += 8) y[blockIdx.x * n + k] = exp(row[k] - largest) / s[0];
        """,
        2,
        8,
        21,
    ),
    "softmax_of_a_warp": Case(
        """
        double v = x[i], largest = warp_max(v), e = exp(v - largest);
        y[i] = e / warp_sum(e);
        """,
        1,
        96,
        before=_WARP_SUM,
    ),
    "softmax_of_a_row_per_warp": Case(
        """
        int warp = i / 32, lane = t % 32;
        if (warp >= 2) return;
        const double* row = x + warp * n;
        double largest = -1e30;
        for (int k = lane; k < n; k += 32) largest = fmax(largest, row[k]);
        largest = warp_max(largest);
        double sum = 0;
        for (int k = lane; k < n; k += 32) sum += exp(row[k] - largest);
        sum = warp_sum(sum);
        for (int k = lane; k < n; k += 32) y[warp * n + k] = exp(row[k] - largest) / sum;
        """,
        1,
        96,
        45,
        before=_WARP_SUM,
    ),
    "dot_product_of_a_row_per_warp": Case(
        """
        int row = i / 32, lane = t % 32;
        double sum = 0;
        for (int k = lane; k < 40; k += 32) sum += x[row * 20 + k] * x[50 + k];
        for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
        sum = __shfl_sync(0xffffffffu, sum, 0);
        if (lane == 0) y[row] = sum * sum;
        y[32 + i] = sum * x[i];
        """,
        1,
        64,
    ),
    "online_softmax": Case(
        """
        __shared__ double keys[4], values[4];
        double query = x[i], largest = -1e30, sum = 0, out = 0;
        for (int tile = 0; tile < n; tile += 4) {
          keys[t] = x[32 + tile + t];
          values[t] = x[64 + tile + t];
          __syncthreads();
          for (int k = 0; k < 4; k++) {
            double score = query * keys[k], now = fmax(largest, score), fade = exp(largest - now);
            double p = exp(score - now);
            sum = sum * fade + p;
            out = out * fade + p * values[k];
            largest = now;
          }
          __syncthreads();
        }
        y[i] = out / sum;
        """,
        2,
        4,
        16,
    ),
    "cross_entropy": Case(
        f"""
        __shared__ double s[16];
        s[t] = exp(x[i]);
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        int label = (blockIdx.x * 5 + 3) % 16;
        if (t == label) atomicAdd(&y[0], (log(s[0]) - x[i]) / gridDim.x);
        """,
        4,
        16,
    ),
}
