"""Kernels whose threads return between barriers (rule 7): `k(double *y, const double *x, int n)`, one block of 32."""

HEAD = "__shared__ double s[32]; int t = threadIdx.x;"

SOURCES = {
    "between_two_barriers": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t] * x[t];
          __syncthreads();
          if (t >= n) return;
          y[t] = s[0] * s[t];
          __syncthreads();
          y[t] *= s[1];
        }}""",
    "in_a_loop": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          for (int j = 0; j < n; j++) {{
            if (20 * x[t] > j + 15) return;
            s[t] = x[t] * j;
            __syncthreads();
            y[t] += s[t] * s[t];
            __syncthreads();
          }}
        }}""",
    "before_a_loop_whose_bound_is_loaded": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t];
          __syncthreads();
          if (t >= n) return;
          int m = (int)x[0] + 3;
          double sum = 0;
          for (int j = 0; j < m; j++) {{
            double v = s[t];
            __syncthreads();
            s[t] = v * v;
            __syncthreads();
            sum += s[0] + v;
          }}
          y[t] = sum;
        }}""",
    "before_shuffles": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t] * x[t];
          __syncthreads();
          if (t >= 16) return;
          double v = s[t + n % 8];
          for (int o = 8; o > 0; o /= 2) v += v * __shfl_down_sync(0xffffffffu, v, o, 16);
          y[t] = v;
        }}""",
    "around_branches_and_loops_in_functions": f"""
        __device__ double exchange(double* s, int t, double v) {{
          s[t] = v;
          __syncthreads();
          double r = s[0] * v;
          __syncthreads();
          return r;
        }}
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          double v = exchange(s, t, x[t]);
          if (t >= n) return;
          if (n > 3) {{
            v = exchange(s, t, v * v);
          }} else {{
            v = v * exchange(s, t, v);
            v += exchange(s, t, v * x[1]);
          }}
          for (int j = 0; j < n / 8; j++) {{
            v = exchange(s, t, v + j);
            if (t + j > 20) return;
            v += exchange(s, t, sin(v));
            y[t] += v;
          }}
          y[t] += v * s[0];
        }}""",
    "before_a_do_while": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t];
          __syncthreads();
          if (t >= n) return;
          int u = 0;
          do {{
            double v = s[t] * x[u];
            __syncthreads();
            s[t] = v;
            __syncthreads();
            y[t] += s[0] * v;
          }} while (++u < 3);
          y[t] *= s[t];
        }}""",
    "counted_by_the_block": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t];
          __syncthreads();
          if (t >= n) return;
          int many = __syncthreads_count(x[t] > 0.5);
          y[t] = s[t] * many;
          __syncthreads();
          if (__syncthreads_and(t < n)) y[t] *= s[0];
        }}""",
}
LENGTHS = (0, 3, 20, 32)
