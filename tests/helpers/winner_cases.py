"""Kernels k(y, x, n) with atomic maxima, minima and exchanges of doubles, for the CPU's tests and the GPU's."""

from __future__ import annotations

from dataclasses import dataclass

FUNCTIONS = """
#define TI int t = threadIdx.x, i = blockIdx.x * 32 + t;
#define SYNC __syncthreads();
__device__ double bits(long long b) { return __longlong_as_double(b); }
__device__ long long bits(double v) { return __double_as_longlong(v); }
__device__ void max_do(double* a, double v) {
  unsigned long long* p = (unsigned long long*)a;
  unsigned long long old = *p, assumed;
  do {
    assumed = old;
    old = atomicCAS(p, assumed, bits(fmax(v, bits((long long)assumed))));
  } while (assumed != old);
}
__device__ double max_while(double* a, double v) {
  unsigned long long* p = (unsigned long long*)a;
  unsigned long long old = *p;
  while (v > bits((long long)old)) {
    unsigned long long assumed = old;
    old = atomicCAS(p, assumed, bits(v));
    if (old == assumed) break;
  }
  return bits((long long)old);
}
__device__ void min_guarded(double* a, double v) {
  if (*a <= v) return;
  unsigned long long* p = (unsigned long long*)a;
  unsigned long long old = *p, assumed;
  do {
    assumed = old;
    if (bits((long long)assumed) <= v) break;
    old = atomicCAS(p, assumed, bits(v));
  } while (assumed != old);
}
__device__ void max_select(double* a, double v) {
  unsigned long long* p = (unsigned long long*)a;
  unsigned long long old;
  do {
    old = *p;
    double now = bits((long long)old), larger = now < v ? v : now;
    if (larger == now) return;
    if (atomicCAS(p, old, bits(larger)) == old) return;
  } while (true);
}
__device__ void max_bits(double* a, double v) {
  if (v >= 0) atomicMax((long long*)a, bits(v)); else atomicMin((unsigned long long*)a, (unsigned long long)bits(v));
}
__device__ void min_bits(double* a, double v) {
  if (!signbit(v)) atomicMin((long long*)a, bits(v));
  else atomicMax((unsigned long long*)a, (unsigned long long)bits(v));
}
__device__ void exchange(double* a, double v) { atomicExch((unsigned long long*)a, (unsigned long long)bits(v)); }
"""


@dataclass(frozen=True)
class Case:
    """`grid`, `block`: the launch. Arrays have 96 numbers; `n` is the last argument."""

    body: str
    grid: int = 3
    block: int = 32
    n: int = 96

    @property
    def source(self) -> str:
        return FUNCTIONS + "__global__ void k(double* y, const double* x, int n) {" + self.body + "}"


_I = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"

CASES = {
    "max, do-while": Case(_I + "max_do(&y[i % 5], x[i] * x[i]);"),
    "max, while": Case(_I + "max_while(&y[i % 5], sin(3 * x[i]));", n=70),
    "max, select": Case(_I + "max_select(&y[i % 3], x[i] * x[(i + 7) % 96]);"),
    "min, guarded": Case(_I + "min_guarded(&y[i % 4], log(x[i]));"),
    "max of bits": Case(_I + "max_bits(&y[i % 4], x[i] - 0.7);"),
    "min of bits": Case(_I + "min_bits(&y[i % 4], x[i] - 0.7);"),
    "bounds in one buffer": Case(_I + "min_bits(&y[0], x[i] * 3 - 1); max_bits(&y[1], x[i] * 3 - 1);"),
    "max in a branch": Case(_I + "if (x[i] > 0.6) { double v = log(x[i]); max_do(&y[i % 2], v); }"),
    "max in a loop": Case(
        _I
        + "double v = x[i]; for (int k = 0; k < 4 + i % 3; k++) { v = v * 1.1 - 0.2 * v * v; max_do(&y[k], v * x[k]); }"
    ),
    "max in a while loop": Case(
        _I + "double v = x[i]; int k = 0; while (v > 0.1) { max_while(&y[k % 7], sin(9 * v)); v *= 0.6; k++; }"
    ),
    "max in nested loops": Case(
        _I + "for (int k = 0; k < 3; k++) { double s = 0; for (int j = 0; j < k + 2; j++) s = sin(s + x[(i + j) % 96]);"
        " max_do(&y[k], s); }"
    ),
    "max of what a block reduced": Case(
        "__shared__ double s[32]; int t = threadIdx.x; s[t] = x[blockIdx.x * 32 + t] * 2; SYNC "
        "for (int d = 16; d > 0; d /= 2) { if (t < d) s[t] = s[t] * 0.5 + s[t + d] * s[t]; SYNC }"
        "if (t == 0) max_do(&y[0], s[0]);"
    ),
    "max of what a warp reduced": Case(
        "int i = blockIdx.x * 32 + threadIdx.x; double v = x[i] * x[i];"
        "for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d); if (threadIdx.x == 0) max_do(y, v);"
    ),
    "exchange by one": Case(_I + "if (i % 8 == 3) exchange(&y[i / 8], x[i] * x[i]);"),
    "shared max": Case(
        "__shared__ double m; TI if (t == 0) m = y[blockIdx.x]; SYNC "
        "max_do(&m, x[i] * x[i] - 0.3); SYNC if (t == 0) y[blockIdx.x] = m * x[blockIdx.x];"
    ),
    "shared bins": Case(
        "__shared__ double m[7]; TI if (t < 7) m[t] = y[t + blockIdx.x * 7];"
        " SYNC if (t % 3 != 1) { double v = sin(4 * x[i]);"
        " if (v > 0) max_bits(&m[t % 5], v); else min_bits(&m[5 + t % 2], v); }"
        " SYNC if (t < 7) y[blockIdx.x * 7 + t] = m[t] * m[(t + 1) % 7];"
    ),
    "shared max in a loop of phases": Case(
        "__shared__ double m[2]; TI double s = 0;"
        "for (int k = 0; k < 4; k++) { if (t < 2) m[t] = 0.1 * k; SYNC max_while(&m[t % 2], x[i] * cos(k + x[i]));"
        " SYNC s += m[0] * m[1] * x[i]; SYNC } y[i] = s;"
    ),
    "shared max, reset by its reader": Case(
        "__shared__ double m; TI if (t == 0) m = 0; SYNC "
        "for (int k = 1; k < 4; k++) { max_select(&m, sin(k * x[i])); SYNC "
        " if (t == 0) { y[blockIdx.x * 4 + k] = m; m = 0; } SYNC }"
    ),
    "shared max, then one in global memory": Case(
        "__shared__ double m; TI if (t == 0) m = -9; SYNC "
        "max_do(&m, x[i] * x[i]); SYNC if (t == 0) max_do(&y[0], m * 1.5);"
    ),
    "shared exchange by one": Case(
        "__shared__ double m; TI if (t == 9) m = y[3]; SYNC if (t == 5) exchange(&m, x[i] * x[i]); SYNC"
        " y[i] = m * x[i];"
    ),
}
