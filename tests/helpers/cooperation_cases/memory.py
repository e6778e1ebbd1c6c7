"""The shapes that shared memory comes in."""

from __future__ import annotations

from .case import Case

CASES = {
    "two_dimensions": Case("""
        __shared__ double s[4][8];
        s[t / 8][t % 8] = i < n ? x[i] * x[i] : 1.0;
        __syncthreads();
        y[i] = s[t % 4][t / 4] * s[(t / 8 + 1) % 4][t % 8] + s[3][7];
        """),
    "three_dimensions": Case(
        """
        __shared__ double s[2][4][4];
        int tx = threadIdx.x, ty = threadIdx.y, tz = threadIdx.z;
        int at = (blockIdx.x * 2 + tz) * 16 + ty * 4 + tx;
        s[tz][ty][tx] = x[at] * x[at];
        __syncthreads();
        y[at] = s[1 - tz][tx][ty] * s[tz][(ty + 1) % 4][tx] * x[at];
        """,
        block=(4, 4, 2),
    ),
    "array_of_structs": Case(
        """
        __shared__ Body s[32];
        s[t].mass = x[i];
        s[t].kind = t % 3;
        for (int k = 0; k < 2; k++) s[t].at[k] = x[i] * (k + 1) + x[(i + 1) % n];
        __syncthreads();
        Body other = s[(t + 5) % 32];
        y[i] = other.mass * other.at[0] * other.kind + s[31 - t].at[1] * s[t].mass;
        """,
        before="struct Body { double mass; int kind; double at[2]; };",
    ),
    "structs_stored_whole": Case(
        """
        __shared__ Pair s[32];
        Pair mine = {x[i], x[i] * x[(i + 7) % n]};
        s[t] = mine;
        __syncthreads();
        if (t % 2 == 0) { Pair swap = s[t + 1]; swap.a *= s[t].b; mine = swap; }
        __syncthreads();
        s[t] = mine;
        __syncthreads();
        y[i] = s[31 - t].a * s[t].b;
        """,
        before="struct Pair { double a, b; };",
    ),
    "vectors": Case("""
        __shared__ double2 s[32];
        s[t] = make_double2(x[i], x[i] * x[i]);
        __syncthreads();
        double2 v = s[(t + 1) % 32];
        y[i] = v.x * s[t].y + v.y * s[0].x;
        """),
    "views_of_bytes": Case(
        """
        extern __shared__ char raw[];
        double* a = (double*)raw;
        double* b = a + blockDim.x;
        int* index = (int*)(b + blockDim.x);
        a[t] = x[i] * x[i];
        index[t] = (t * 7 + 3) % blockDim.x;
        __syncthreads();
        b[index[t]] = a[t] * a[(t + 1) % blockDim.x];
        __syncthreads();
        y[i] = b[t] * a[index[t]];
        """,
        shared=32 * (8 + 8 + 4),
    ),
    "views_of_floats": Case(
        """
        extern __shared__ float f[];
        float *a = f, *b = &f[blockDim.x];
        int* order = (int*)(f + 2 * blockDim.x);
        a[t] = x[i];
        b[31 - t] = 2.0f * (float)x[(i + 1) % n];
        order[t] = t ^ 5;
        __syncthreads();
        y[i] = (double)a[order[t]] * x[i] + b[t] - a[0];
        """,
        shared=32 * 12,
        step=1e-2,
        tolerance=1e-4,
    ),
    "views_with_runtime_offsets": Case(
        """
        extern __shared__ double s[];
        double *rows = s, *total = s + n / 2;
        rows[t] = x[i] * x[i];
        if (t < 2) total[t] = x[t];
        __syncthreads();
        y[i] = rows[31 - t] * total[t & 1];
        """,
        shared=8 * (35 + 2),
    ),
    "above_48_kb": Case(
        """
        extern __shared__ double s[];
        s[t + 6500] = x[i] * x[i];
        s[t] = x[i];
        __syncthreads();
        y[i] = s[6500 + (t + 1) % 32] * s[(t + 2) % 32];
        """,
        shared=8 * 6532,
    ),
    "shared_scalar": Case("""
        __shared__ double total;
        __shared__ int chosen;
        if (t == 0) { total = x[i] * x[i]; chosen = (int)(x[i] * 10) % 32; }
        __syncthreads();
        double v = total * x[blockIdx.x * 32 + chosen];
        __syncthreads();
        if (t == 5) total = v * total;
        __syncthreads();
        y[i] = total * x[i] + v;
        """),
    "own_array_in_a_device_function": Case(
        "y[i] = swapped(x[i]) * swapped(x[i] * x[(i + 1) % n]);",
        before="""
        __device__ double swapped(double v) {
          __shared__ double s[32];
          s[threadIdx.x] = v * v;
          __syncthreads();
          double other = s[threadIdx.x ^ 1];
          __syncthreads();
          return other * v;
        }""",
    ),
    "one_array_used_twice": Case("""
        __shared__ double s[32];
        s[t] = x[i];
        __syncthreads();
        double a = s[(t + 1) % 32] * s[t];
        __syncthreads();
        s[31 - t] = a * a;
        __syncthreads();
        y[i] = s[t] * a + s[(t + 3) % 32];
        """),
    "template_tile_size": Case(
        """
        __shared__ double s[T][T + 1];
        int row = t / T, column = t % T;
        for (int k = row; k < T; k += 32 / T) s[k][column] = x[blockIdx.x * 32 + k * T % 32 + column] * (k + 1);
        __syncthreads();
        double sum = 0;
        #pragma unroll
        for (int k = 0; k < T; k++) sum += s[column][k] * s[k][row];
        y[i] = sum;
        """,
        template="template <int T>",
        kernel="k<8>",
    ),
    "pointer_chosen_at_run_time": Case("""
        __shared__ double a[32], b[32];
        a[t] = x[i];
        b[t] = x[i] * x[i];
        __syncthreads();
        double* from = t % 3 == 0 ? a : b;
        y[i] = from[(t + 4) % 32] * from[t];
        """),
    "swapped_pointers": Case(
        """
        __shared__ double a[32], b[32];
        double *now = a, *next = b;
        now[t] = x[i];
        __syncthreads();
        for (int step = 0; step < 3; step++) {
          next[t] = now[t] * 0.5 + now[(t + 1) % 32] * now[(t + 31) % 32];
          __syncthreads();
          double* swap = now; now = next; next = swap;
        }
        y[i] = now[t];
        """,
        splits=False,
    ),
    "uninitialised_cells_are_not_read": Case("""
        __shared__ double s[32];
        if (i < n) s[t] = x[i] * x[i];
        __syncthreads();
        if (i + 1 < n && t < 31) y[i] = s[t + 1] * s[t];
        """),
    "dynamic_array_of_structs": Case(
        """
        extern __shared__ Entry list[];
        list[t].key = x[i];
        list[t].other = 31 - t;
        list[t].value = x[i] * x[i];
        __syncthreads();
        y[i] = list[list[t].other].key * list[t ^ 1].value;
        """,
        shared=32 * 24,
        before="struct Entry { double key; int other; double value; };",
    ),
    "one_dynamic_array_under_two_names": Case(
        """
        extern __shared__ double a[];
        extern __shared__ double b[];
        a[t] = x[i] * x[i];
        __syncthreads();
        y[i] = b[31 - t] * x[i];
        """,
        shared=256,
    ),
    "floats_behind_doubles": Case(
        """
        extern __shared__ double s[];
        float* f = (float*)(s + blockDim.x);
        s[t] = x[i] * x[i];
        f[t] = x[i];
        __syncthreads();
        y[i] = s[31 - t] * f[t ^ 1];
        """,
        shared=32 * 12,
        step=1e-3,
        tolerance=1e-3,
    ),
    "pairs_of_doubles": Case("""
        __shared__ double s[32];
        if (t < 16) ((double2*)s)[t] = ((const double2*)x)[blockIdx.x * 16 + t];
        __syncthreads();
        double2 v = ((double2*)s)[t / 2];
        y[i] = v.x * v.y * s[31 - t];
        """),
    "halves": Case(
        """
        __shared__ __half s[32];
        s[t] = __float2half((float)x[i]);
        __syncthreads();
        y[i] = x[i] * (double)__half2float(s[31 - t]);
        """,
        before="#include <cuda_fp16.h>",
        step=0.25,
        tolerance=5e-2,
    ),
    "dynamic_halves": Case(
        """
        extern __shared__ __half s[];
        __half *a = s, *b = s + blockDim.x;
        a[t] = __float2half((float)x[i]);
        b[t] = __float2half(2 * (float)x[i]);
        __syncthreads();
        y[i] = x[i] * (double)__half2float(a[31 - t]) + __half2float(b[t ^ 1]);
        """,
        shared=128,
        before="#include <cuda_fp16.h>",
        step=0.25,
        tolerance=5e-2,
    ),
    "cells_shared_by_rows_of_threads": Case(
        """
        __shared__ double s[16];
        int at = blockIdx.x * 32 + threadIdx.y * 16 + t;
        if (threadIdx.y == 0) s[t] = x[at] * x[at];
        __syncthreads();
        y[at] = s[t] * x[at];
        """,
        block=(16, 2),
    ),
    "own_cells_and_atomics": Case("""
        __shared__ double s[32];
        s[t] = x[i];
        atomicAdd(&s[t], x[i] * x[i]);
        y[i] = s[t] * s[t];
        """),
    "overlapping_pointers": Case("""
        __shared__ double s[64];
        double *a = s, *b = s + 16;
        a[t] = x[i];
        __syncthreads();
        double v = b[t % 16];
        __syncthreads();
        b[t] = v * x[i];
        __syncthreads();
        y[i] = a[t] + (t >= 16 ? v : 0.0);
        """),
}
