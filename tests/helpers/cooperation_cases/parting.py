"""Warp functions in loops that lanes leave at different times: by masks that the kernel keeps, that it asks for, and by
the mask of all lanes, where those that are done leave the kernel."""

from __future__ import annotations

from .case import Case

_TRIPS = "int m = (i * 7 + 3) % 5;"

CASES = {
    "lanes_leave_by_ballot": Case(f"""
        {_TRIPS} int r = 0; double v = x[i];
        unsigned live = __ballot_sync(0xffffffffu, r < m);
        while (r < m) {{
          double o = __shfl_down_sync(live, v, 1);
          v += t < 31 && (live >> (t + 1) & 1) ? 0.5 * o * x[i] : 0.1 * v;
          live = __ballot_sync(live, r + 1 < m);
          r++;
        }}
        y[i] = v;
        """),
    "lanes_leave_with_break": Case(
        f"""
        {_TRIPS} double v = x[i]; unsigned live = 0xffffffffu;
        for (int r = 0; r < 8; r++) {{
          live = __ballot_sync(live, r < m);
          if (r >= m) break;
          double o = __shfl_up_sync(live, v, 1, 8);
          if (t % 8 == 0 || !(live >> (t - 1) & 1)) continue;
          v = sin(v) + 0.3 * o * o;
        }}
        y[i] = v;
        """,
        1,
        96,
    ),
    "lanes_leave_by_data": Case("""
        double v = x[i]; unsigned live = __ballot_sync(0xffffffffu, v < 3);
        while (v < 3) {
          double o = __shfl_xor_sync(live, v, 2);
          v = 1.3 * v + (live >> (t ^ 2) & 1 ? 0.2 * o * v : 0.1);
          live = __ballot_sync(live, v < 3);
        }
        y[i] = v;
        """),
    "lanes_that_are_active": Case(
        f"""
        {_TRIPS} double v = x[i];
        for (int r = m; r < 6; r++) {{
          unsigned active = __activemask();
          double o = __shfl_sync(active, v, __ffs(active) - 1) + __popc(active) * 0.01;
          v += 0.25 * v * o;
        }}
        y[i] = v;
        """,
        2,
        48,
    ),
    "nested_loops_that_lanes_leave": Case(f"""
        {_TRIPS} double v = x[i]; unsigned outer = __ballot_sync(0xffffffffu, 0 < m);
        for (int r = 0; r < m; r++) {{
          unsigned inner = outer;
          for (int q = 0; q < m - r; q++) {{
            double o = __shfl_xor_sync(inner, v * x[i], 4);
            v = 0.9 * v + (inner >> (t ^ 4) & 1 ? 0.2 * o : 0.1);
            inner = __ballot_sync(inner, q + 1 < m - r);
          }}
          outer = __ballot_sync(outer, r + 1 < m);
        }}
        y[i] = v;
        """),
    "lanes_leave_a_do_loop_in_a_helper": Case(
        f"""
        {_TRIPS} y[i] = walk(x[i], m);
        """,
        before="""
        __device__ double walk(double v, int m) {
          unsigned live = 0xffffffffu; int r = 0, t = threadIdx.x % 32;
          do {
            int from = (t * 7 + r) & 31;
            double o = __shfl_sync(live, v, from);
            v = 0.5 * v + (live >> from & 1 ? 0.4 * o * v : 0.2);
            live = __ballot_sync(live, r + 1 < m);
          } while (++r < m);
          return v;
        }""",
    ),
    "a_warp_sum_over_a_ragged_end": Case(
        """
        for (int k = t; k < n + 32; k += 32) {
          double v = k < n ? x[k] * x[k] : 0.0;
          for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
          y[k % 96] += v * x[k % 96];
          if (k >= n) break;
        }
        """,
        1,
        32,
    ),
    "all_lanes_named_as_some_leave": Case("""
        int m = 1 + t / 16 * 2; double v = x[i];
        for (int r = 0; r < m; r++) v += 0.25 * v * __shfl_xor_sync(0xffffffffu, v, 1);
        y[i] = v;
        """),
    "rows_shorter_than_a_warp": Case(
        """
        int row = threadIdx.y, k = (blockIdx.x * blockDim.y + row) * 16 + t; double v = x[k];
        for (int r = 0; r < 1 + row % 3; r++) v += 0.25 * v * __shfl_xor_sync(0xffffffffu, v, 3, 16);
        y[k] = v;
        """,
        2,
        (16, 3),
    ),
}
