"""The plainest of each kind."""

from __future__ import annotations

from .case import Case, tree

CASES = {
    "tree_sum": Case(f"""
        __shared__ double s[32];
        s[t] = i < n ? x[i] * x[i] : 0.0;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        if (t == 0) y[blockIdx.x] = s[0] * s[0];
        """),
    "tree_product": Case(f"""
        __shared__ double s[32];
        s[t] = i < n ? x[i] + 0.5 : 1.0;
        __syncthreads();
        {tree("s[t] *= s[t + d]")}
        if (t == 0) y[blockIdx.x] = s[0];
        """),
    "dynamic_shared_memory": Case(
        """
        s[t] = i < n ? sin(x[i]) : 0.0;
        __syncthreads();
        if (i < n) y[i] = s[t] * s[(t + 1) % blockDim.x];
        """,
        shared=256,
        before="extern __shared__ double s[];",
    ),
    "tiled_product": Case(
        """
        __shared__ double A[T][T], B[T][T];
        int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
        double sum = 0;
        for (int t = 0; t < n / T; t++) {
          A[ty][tx] = x[row * n + t * T + tx];
          B[ty][tx] = x[(t * T + ty) * n + col];
          __syncthreads();
          for (int k = 0; k < T; k++) sum += A[ty][k] * B[k][tx];
          __syncthreads();
        }
        y[row * n + col] = sum * sum;
        """,
        (2, 2),
        (4, 4),
        8,
        before="#define T 4",
    ),
    "shuffles": Case(
        """
        double v = i < n ? x[i] * x[i] : 0.0;
        for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffffu, v, o);
        double w = __shfl_sync(0xffffffffu, v, 0);
        double u = __shfl_xor_sync(0xffffffffu, w * x[i % n], 3);
        double q = __shfl_up_sync(0xffffffffu, u, 2, 8);
        if (i < n) y[i] = q * u + v;
        """,
        2,
    ),
    "partial_warp": Case(
        """
        double v = x[t] * x[t + 1];
        for (int o = 4; o > 0; o /= 2) v += __shfl_down_sync(0xffffu, v * v, o, 8);
        y[t] = v;
        """,
        1,
        16,
    ),
    "early_return": Case("""
        __shared__ double s[32];
        if (i >= n) return;
        s[t] = x[i] * x[i];
        __syncthreads();
        double v = s[0] * s[t];
        __syncthreads();
        s[t] = v * x[i];
        __syncthreads();
        y[i] = s[t] * s[0];
        """),
    "double_buffered_scan": Case(
        """
        __shared__ double s[64];
        int b = 0;
        s[t] = x[t];
        __syncthreads();
        for (int d = 1; d < 32; d *= 2) {
          double v = s[b * 32 + t];
          if (t >= d) v = v + v * s[b * 32 + t - d];
          b = 1 - b;
          s[b * 32 + t] = v;
          __syncthreads();
        }
        y[t] = s[b * 32 + t];
        """,
        1,
    ),
    "softmax_rows": Case(
        f"""
        __shared__ double s[32];
        s[t] = x[i];
        __syncthreads();
        {tree("s[t] = fmax(s[t], s[t + d])")}
        double m = s[0];
        __syncthreads();
        double e = exp(x[i] - m);
        s[t] = e;
        __syncthreads();
        {tree("s[t] += s[t + d]")}
        y[i] = e / s[0];
        """,
        2,
    ),
    "histogram_in_shared_memory": Case("""
        __shared__ double h[4];
        if (t < 4) h[t] = 0;
        __syncthreads();
        if (i < n) atomicAdd(&h[i % 4], x[i] * x[i]);
        __syncthreads();
        if (t < 4) atomicAdd(&y[t], h[t] * h[(t + 1) % 4]);
        """),
    "phases_on_global_memory": Case(
        """
        y[i] = x[i % n] * x[i % n];
        __syncthreads();
        double v = y[blockIdx.x * blockDim.x + (t + 1) % blockDim.x];
        __syncthreads();
        y[i] = v * v + y[i];
        """,
        2,
    ),
    "barriers_in_a_device_function": Case(
        """
        __shared__ double s[32];
        double v = i < n ? x[i] : 0.0;
        double mean = total(s, t, v) / 32, spread = total(s, t, (v - mean) * (v - mean));
        if (i < n) y[i] = (v - mean) / sqrt(spread + 1e-3);
        """,
        before=f"""
        __device__ double total(double* s, int t, double v) {{
          s[t] = v;
          __syncthreads();
          {tree("s[t] += s[t + d]")}
          double all = s[0];
          __syncthreads();
          return all;
        }}""",
    ),
}
