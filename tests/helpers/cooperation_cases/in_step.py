"""Warp-synchronous code: volatile shared memory whose lanes are in step, without barriers."""

from __future__ import annotations

from .case import Case

_LAST = """
__device__ void last_warp(volatile double *s, int t) {
  s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
}"""

CASES = {
    "volatile_last_warp": Case(
        """
        __shared__ double s[96];
        s[t] = i < n ? x[i] * x[i] : 0;
        if (t < 32) s[64 + t] = 0;
        __syncthreads();
        if (t < 32) last_warp(s, t);
        __syncthreads();
        y[i] = s[0] * x[i];
        """,
        1,
        64,
        before=_LAST,
    ),
    "volatile_halves": Case("""
        __shared__ volatile double s[32];
        s[t] = x[i];
        if (t < 16) {
          s[t] *= s[t + 16];
          if (t < 8) s[t] += s[t + 8] * s[t];
          if (t < 4) { double v = s[t + 4]; s[t] = v * s[t]; }
        }
        y[i] = s[t] * s[t];
        """),
    "volatile_scan": Case(
        """
        extern __shared__ double memory[];
        volatile double *s = memory;
        int lane = t % 32;
        s[t] = x[i];
        for (int d = 1; d < 32; d *= 2) {
          double left = lane >= d ? s[t - d] : 0;
          s[t] += left * s[t];
        }
        y[i] = s[t];
        """,
        2,
        48,
        shared=48 * 8,
    ),
    "volatile_after_return": Case("""
        volatile __shared__ double s[33];
        s[t] = x[i];
        if (t == 0) s[32] = 1;
        if (i >= n) return;
        s[t] = s[t] * s[t + 1];
        y[i] = s[t];
        """),
}
