"""Shuffles whose adjoint goes straight back to the lane that was read, and those where that would be wrong."""

from __future__ import annotations

from .case import Case

CASES = {
    "distances_of_each_lane": Case("""
        double v = x[i];
        double a = __shfl_xor_sync(0xffffffffu, v, t % 3), b = __shfl_up_sync(0xffffffffu, v * v, t % 5);
        y[i] = a * b + __shfl_down_sync(0xffffffffu, a * v, (t / 4) % 4, 16);
        """),
    "distances_from_data": Case("""
        double v = x[i];
        int d = (int)(x[i] * 10) & 7;
        y[i] = v * __shfl_xor_sync(0xffffffffu, v * v, d) + __shfl_down_sync(0xffffffffu, v, d);
        """),
    "one_distance_from_an_argument": Case(
        """
        double v = x[i];
        for (int d = n; d >= 0; d--) {
          double left = __shfl_up_sync(0xffffffffu, v, d, 8), right = __shfl_down_sync(0xffffffffu, v * v, d, 16);
          v = 0.5 * v + 0.2 * left * right + 0.1 * __shfl_xor_sync(0xffffffffu, v, d, 4);
        }
        y[i] = v;
        """,
        n=9,
    ),
    "one_lane_from_an_argument": Case(
        """
        double v = x[i];
        for (int s = 0; s < n; s++)
          v = 0.5 * v + 0.3 * __shfl_sync(0xffffffffu, v * v, s) * __shfl_sync(0xffffffffu, v, s, 4);
        y[i] = v;
        """,
        n=5,
    ),
    "ends_of_segments": Case("""
        double v = x[i];
        double left = __shfl_up_sync(0xffffffffu, v, 3, 8), right = __shfl_down_sync(0xffffffffu, v * v, 6, 8);
        y[i] = left * right + __shfl_up_sync(0xffffffffu, v, 9, 8) * __shfl_down_sync(0xffffffffu, v, 8, 8);
        """),
    "own_values": Case("""
        double v = x[i];
        double a = __shfl_up_sync(0xffffffffu, v, 0) * __shfl_down_sync(0xffffffffu, v * v, 0, 4);
        y[i] = a * __shfl_xor_sync(0xffffffffu, v, 0) + __shfl_xor_sync(0xffffffffu, v, 3, 1) * v;
        """),
    "xor_beyond_the_segment": Case("""
        double v = x[i];
        double a = __shfl_xor_sync(0xffffffffu, v, 9, 8), b = __shfl_xor_sync(0xffffffffu, v * v, 20, 4);
        y[i] = a * b * v;
        """),
    "distances_beyond_the_warp": Case("""
        double v = x[i];
        double a = __shfl_xor_sync(0xffffffffu, v, 33), b = __shfl_down_sync(0xffffffffu, v * v, 32 + n / 10);
        y[i] = a * b + __shfl_up_sync(0xffffffffu, v, 64) * __shfl_xor_sync(0xffffffffu, v, -1);
        """),
    "lanes_that_return": Case("""
        double v = x[i];
        if (t % 5 == 3 || t > 28) return;
        unsigned mask = __activemask();
        bool paired = mask >> (t ^ 1) & 1, led = t + 2 < 32 && (mask >> (t + 2) & 1);
        double other = __shfl_xor_sync(mask, v * v, 1), next = __shfl_down_sync(mask, v, 2);
        double first = __shfl_sync(mask, v, 4) * __shfl_sync(mask, v * v, 1, 8);
        y[i] = (paired ? other : 1.0) * (led ? next : v) * first;
        """),
    "broadcast_in_a_partial_warp": Case(
        """
        double v = x[i];
        double a = __shfl_sync(0xfffu, v, 7), b = __shfl_sync(0xfffu, v * v, 2, 4);
        y[i] = a * b * v;
        """,
        3,
        12,
    ),
    "broadcast_to_whole_and_partial_warps": Case(
        """
        double v = x[i];
        unsigned mask = __activemask();
        y[i] = v * __shfl_sync(mask, v * v, 3) * __shfl_sync(mask, v, 5, 8);
        """,
        2,
        40,
    ),
    "broadcast_among_some_lanes": Case("""
        double v = x[i];
        if (t & 1) v *= __shfl_sync(0xaaaaaaaau, v * v, 13);
        else v += __shfl_sync(0x55555555u, v * v, 2, 16) * __shfl_xor_sync(0x55555555u, v, 6);
        if (i < n) y[i] = v * v;
        """),
    "broadcast_from_a_lane_of_data": Case("""
        double v = x[i];
        int leader = __ffs(__ballot_sync(0xffffffffu, v > 0.7)) - 1;
        y[i] = v * __shfl_sync(0xffffffffu, v * v, leader);
        """),
}
