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
    "last_in_a_for": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t];
          __syncthreads();
          for (int j = 0; j < n; j++) {{
            s[t] = x[t] * (j + 1);
            __syncthreads();
            y[t] += s[t] * s[(t + 1) % 32];
            __syncthreads();
            if (t < j) return;
          }}
          y[t] += s[t] * x[0];
        }}""",
    "last_in_a_while_by_data": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          double v = x[t];
          int j = 0;
          while (j < n) {{
            s[t] = v * v;
            __syncthreads();
            v = 0.5 * v + 0.4 * s[(t + j) % 32];
            y[t] += v;
            ++j;
            __syncthreads();
            if (x[t] * 30 < j) return;
          }}
        }}""",
    "last_in_a_do": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          int j = 0;
          do {{
            s[t] = x[t] * x[(t + j) % 32];
            __syncthreads();
            y[t] += s[0] * s[t];
            __syncthreads();
            if (t % 7 == j) return;
          }} while (++j < n);
          __syncthreads();
          y[t] *= s[t];
        }}""",
    "in_nested_loops": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          double v = x[t];
          for (int j = 0; j < 3; j++) {{
            for (int m = 0; m <= n / 12; m++) {{
              s[t] = v * (1 + 0.1 * j);
              __syncthreads();
              v = 0.6 * v + 0.3 * s[(t + m) % 32];
              __syncthreads();
              if (t % 8 == 2 * j + m) return;
            }}
            y[t] += v * v;
            __syncthreads();
            if (t == 31 - j) {{
              y[t] *= v;
              return;
            }}
          }}
          y[t] += s[t];
        }}""",
    "in_a_switch_in_a_loop": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          for (int j = 0; j < 4; j++) {{
            s[t] = x[t] + j;
            __syncthreads();
            double v = s[(t + 1) % 32];
            __syncthreads();
            switch ((t + j) % 4) {{
              case 0: y[t] += v * v; break;
              case 1: if (t >= n) return; y[t] += v; break;
              case 2: y[t] *= v;
              default: if (t % 5 == j) return;
            }}
          }}
        }}""",
    "falling_through_to_a_barrier": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t] * x[t];
          __syncthreads();
          switch (n) {{
            case 3: y[t] = s[31 - t];
            case 20: if (t >= n) return;
            case 32:
              __syncthreads();
              s[t] *= x[t];
              __syncthreads();
            default: y[t] += s[0] * s[t];
          }}
          __syncthreads();
          y[t] += s[t];
        }}""",
    "beside_break_and_continue": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = x[t];
          __syncthreads();
          for (int j = 0; j < 6; j++) {{
            if (j == 2) continue;
            if (j > n) break;
            if (t == 3 * j) return;
            s[t] = x[t] * (j + 2);
            __syncthreads();
            y[t] += s[(t + 1) % 32] * x[t];
            __syncthreads();
            if (t == 3 * j + 1) {{
              y[t] -= x[t] * x[t];
              return;
            }}
          }}
          __syncthreads();
          y[t] *= s[t];
        }}""",
    "after_work_of_their_own": f"""
        __global__ void k(double* y, const double* x, int n) {{
          {HEAD}
          s[t] = 1;
          __syncthreads();
          if (t < n) {{
            s[t] = x[t];
          }} else {{
            y[t] = x[t] * x[t] * s[t];
            return;
          }}
          int last = t % 4;
          for (int j = 0; j < 4; j++) {{
            __syncthreads();
            double v = s[(t + 1) % 32];
            __syncthreads();
            s[t] = v * x[t];
            y[t] += v;
            if (j == last) return;
          }}
        }}""",
}
LENGTHS = (0, 3, 20, 32)
