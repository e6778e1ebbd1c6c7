"""Where barriers stand: in branches, in loops, in functions, around phases on global memory."""

from __future__ import annotations

from .case import Case, tree

CASES = {
    "uniform_branch": Case("""
        __shared__ double s[32];
        double v = x[i];
        s[t] = v * v;
        if (n > 50) {
          __syncthreads();
          v = v * s[(t + 1) % 32];
          __syncthreads();
          s[t] = v;
        }
        __syncthreads();
        if (blockIdx.x == 1) { y[i] = s[0] * v; } else { __syncthreads(); y[i] = s[t] * s[31 - t]; }
        """),
    "uniform_loop": Case(
        """
        __shared__ double s[32];
        double v = x[i];
        for (int k = 0; k < n; k++) {
          s[t] = v;
          __syncthreads();
          v = 0.5 * v + 0.3 * s[(t + k + 1) % 32] * s[t];
          __syncthreads();
        }
        y[i] = v;
        """,
        n=5,
    ),
    "uniform_while": Case("""
        __shared__ double s[32];
        s[t] = x[i];
        __syncthreads();
        int d = 1;
        while (d < n / 2) {
          double other = s[(t + d) % 32];
          __syncthreads();
          s[t] = s[t] * 0.7 + 0.3 * other * other;
          __syncthreads();
          d *= 3;
        }
        y[i] = s[t] * d;
        """),
    "do_while": Case("""
        __shared__ double s[32];
        int left = 3;
        double v = x[i];
        do {
          s[t] = v * v;
          __syncthreads();
          v = s[t ^ left];
          __syncthreads();
        } while (--left > 0);
        y[i] = v;
        """),
    "until_all_have_converged": Case("""
        __shared__ double s[32];
        double v = x[i];
        int round = 0;
        while (__syncthreads_or(v > 0.3)) {
          s[t] = v;
          __syncthreads();
          v = 0.6 * v + 0.05 * s[(t + 1) % 32] * s[t];
          round++;
        }
        y[i] = v * round;
        """),
    "flag_in_shared_memory": Case("""
        __shared__ double s[32];
        __shared__ int more;
        double v = x[i];
        for (int round = 0; round < 10; round++) {
          if (t == 0) more = round < n / 20;
          __syncthreads();
          if (!more) break;
          s[t] = v * v;
          __syncthreads();
          v = s[(t + 1) % 32] * 0.9;
          __syncthreads();
        }
        y[i] = v;
        """),
    "votes_of_the_block": Case("""
        __shared__ double s[32];
        s[t] = x[i] * x[i];
        int larger = __syncthreads_count(x[i] > 0.5);
        double v = s[(t + larger) % 32];
        if (__syncthreads_and(x[i] > 0.1)) v *= s[t];
        if (__syncthreads_or(x[i] > 100)) v *= 7;
        y[i] = v * larger;
        """),
    "nested_uniform_loops": Case("""
        __shared__ double s[32];
        double v = x[i];
        for (int a = 0; a < 2; a++) {
          s[t] = v;
          __syncthreads();
          for (int b = 1; b <= a + 1; b++) {
            double w = s[(t + b) % 32];
            __syncthreads();
            s[t] = w * v;
            __syncthreads();
          }
          v += s[31 - t];
          __syncthreads();
        }
        y[i] = v;
        """),
    "uniform_switch": Case("""
        __shared__ double s[32];
        s[t] = x[i];
        __syncthreads();
        double v = s[t];
        switch (blockIdx.x) {
          case 0: v = s[31 - t]; __syncthreads(); s[t] = v * v; break;
          case 1: s[t] *= s[t]; break;
          default: __syncthreads();
        }
        __syncthreads();
        y[i] = s[(t + 1) % 32] * v;
        """),
    "values_kept_across_barriers": Case("""
        __shared__ double s[32];
        double kept[3], a = x[i], b = a * a;
        for (int k = 0; k < 3; k++) kept[k] = a * (k + 1) + b;
        s[t] = b;
        __syncthreads();
        double c = s[(t + 1) % 32] * a;
        __syncthreads();
        s[t] = c * kept[t % 3];
        __syncthreads();
        y[i] = s[31 - t] * a * b * c + kept[(t + 1) % 3];
        """),
    "early_return_then_a_loop_of_barriers": Case("""
        __shared__ double s[32];
        if (i >= n) return;
        s[t] = x[i] * x[i];
        __syncthreads();
        for (int k = 1; k < 4; k++) {
          double other = s[max(t - k, 0)];
          __syncthreads();
          s[t] = 0.5 * s[t] + other * x[i];
          __syncthreads();
        }
        y[i] = s[t] * s[0];
        """),
    "device_function_in_a_loop": Case(
        """
        __shared__ double s[32];
        double v = i < n ? x[i] : 0.1;
        for (int k = 0; k < 3; k++) v = v * 0.5 + mean(s, v * v);
        y[i] = v;
        """,
        before=f"""
        __device__ double mean(double* s, double v) {{
          int t = threadIdx.x;
          s[t] = v;
          __syncthreads();
          {tree("s[t] += s[t + d]")}
          double all = s[0] / 32;
          __syncthreads();
          return all;
        }}""",
    ),
    "shadow_zeroed_by_its_owner_alone": Case("""
        __shared__ double s[32];
        s[t] = x[i] * x[i];
        __syncthreads();
        double v = s[t] * s[(t + 1) % 32] * s[0];
        __syncthreads();
        s[t] = v;
        s[t] = s[t] * s[t];
        __syncthreads();
        y[i] = s[t] + s[31 - t];
        """),
    "barrier_at_both_ends": Case("""
        __syncthreads();
        __shared__ double s[32];
        s[t] = x[i] * x[i];
        __syncthreads();
        y[i] = s[t ^ 3];
        __syncthreads();
        """),
    "phases_that_read_what_the_output_held": Case("""
        double v = y[i];
        __syncthreads();
        y[blockIdx.x * 32 + (t + 1) % 32] = v * x[i];
        __syncthreads();
        y[i] *= y[i] + v;
        """),
    "iterations_counted_in_memory": Case("""
        __shared__ double s[32];
        int rounds = (int)(x[blockIdx.x] * 6) + 1;
        double v = x[i];
        for (int k = 0; k < rounds; k++) {
          s[t] = v;
          __syncthreads();
          v = 0.5 * v + 0.3 * s[(t + k + 1) % 32] * s[t];
          __syncthreads();
        }
        y[i] = v;
        """),
    "until_the_norm_is_small": Case(f"""
        __shared__ double s[32];
        double v = x[i], norm;
        do {{
          s[t] = v * v;
          __syncthreads();
          {tree("s[t] += s[t + d]")}
          norm = s[0];
          __syncthreads();
          v *= 0.6 + 0.01 * norm;
        }} while (norm > 1.0);
        y[i] = v * norm;
        """),
    "uniform_continue": Case("""
        __shared__ double s[32];
        double v = x[i];
        for (int k = 0; k < 6; k++) {
          if (k % 2 == 0) continue;
          s[t] = v;
          __syncthreads();
          v = 0.5 * v + 0.3 * s[31 - t] * s[t];
          __syncthreads();
        }
        y[i] = v;
        """),
    "class_with_temporary_storage": Case(
        """
        __shared__ typename BlockReduce<double, 32>::TempStorage temporary;
        y[i] = BlockReduce<double, 32>(temporary).Sum(x[i] * x[i]) * x[i];
        """,
        before="""
        template <class T, int N> struct BlockReduce {
          struct TempStorage { T s[N]; T total; };
          TempStorage& storage;
          __device__ BlockReduce(TempStorage& given) : storage(given) {}
          __device__ T Sum(T v) {
            int t = threadIdx.x;
            storage.s[t] = v;
            __syncthreads();
            for (int d = N / 2; d > 0; d /= 2) { if (t < d) storage.s[t] += storage.s[t + d]; __syncthreads(); }
            if (t == 0) storage.total = storage.s[0];
            __syncthreads();
            return storage.total;
          }
        };""",
    ),
    "lambda_with_barriers": Case("""
        __shared__ double s[32];
        auto turned = [&](double v) {
          s[t] = v;
          __syncthreads();
          double other = s[31 - t];
          __syncthreads();
          return other;
        };
        y[i] = turned(x[i]) * turned(x[i] * x[i]);
        """),
}
