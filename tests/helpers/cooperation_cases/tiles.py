"""Tiles of shared memory: products, sums over pairs, windows, and buffers that turn."""

from __future__ import annotations

from .case import Case

_TILE = """
        __shared__ double A[4][4], B[4][4];
        int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 4 + ty, column = blockIdx.x * 4 + tx;
        double sum = 0;
        for (int k0 = 0; k0 < n; k0 += 4) {
          FILL
          __syncthreads();
          for (int k = 0; k < 4; k++) sum += A[ty][k] * B[k][tx];
          __syncthreads();
        }
        if (row < n && column < n) y[row * n + column] = sum * sum;
        """
_SQUARE = {"grid": (2, 2), "block": (4, 4), "n": 7}

CASES = {
    "product_with_zeros_in_the_tail": Case(
        _TILE.replace(
            "FILL",
            """A[ty][tx] = row < n && k0 + tx < n ? x[row * n + k0 + tx] : 0.0;
          B[ty][tx] = k0 + ty < n && column < n ? x[(k0 + ty) * n + column] : 0.0;""",
        ),
        **_SQUARE,
    ),
    "product_with_branches_in_the_tail": Case(
        _TILE.replace(
            "FILL",
            """if (row < n && k0 + tx < n) A[ty][tx] = x[row * n + k0 + tx]; else A[ty][tx] = 0;
          if (k0 + ty < n && column < n) { B[ty][tx] = x[(k0 + ty) * n + column]; } else { B[ty][tx] = 0; }""",
        ),
        **_SQUARE,
    ),
    "product_with_a_bounded_inner_loop": Case(
        """
        __shared__ double A[4][4], B[4][4];
        int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 4 + ty, column = blockIdx.x * 4 + tx;
        double sum = 0;
        for (int k0 = 0; k0 < n; k0 += 4) {
          if (row < n && k0 + tx < n) A[ty][tx] = x[row * n + k0 + tx];
          if (k0 + ty < n && column < n) B[ty][tx] = x[(k0 + ty) * n + column];
          __syncthreads();
          if (row < n && column < n) for (int k = 0; k < min(4, n - k0); k++) sum += A[ty][k] * B[k][tx];
          __syncthreads();
        }
        if (row < n && column < n) y[row * n + column] = sum * sum;
        """,
        **_SQUARE,
    ),
    "nonlinear_product": Case(
        """
        __shared__ double A[4][4], B[4][4];
        int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 4 + ty, column = blockIdx.x * 4 + tx;
        double largest = 0;
        for (int k0 = 0; k0 < n; k0 += 4) {
          A[ty][tx] = x[row * n + k0 + tx];
          B[ty][tx] = exp(-x[(k0 + ty) * n + column]);
          __syncthreads();
          for (int k = 0; k < 4; k++) largest = fmax(largest, A[ty][k] * B[k][tx]) + 0.1 * A[ty][k] * largest;
          __syncthreads();
        }
        y[row * n + column] = largest;
        """,
        (2, 2),
        (4, 4),
        8,
    ),
    "pairs_of_bodies": Case(
        """
        __shared__ double at[8], mass[8];
        double here = i < n ? x[i] : 0.0, force = 0;
        for (int tile = 0; tile < (n + 7) / 8; tile++) {
          int j = tile * 8 + t;
          at[t] = j < n ? x[j] : 0.0;
          mass[t] = j < n ? x[n + j] : 0.0;
          __syncthreads();
          for (int k = 0; k < 8; k++) {
            double r = at[k] - here;
            force += mass[k] * r / (r * r * r * r + 0.1);
          }
          __syncthreads();
        }
        if (i < n) y[i] = force;
        """,
        4,
        8,
        27,
    ),
    "window_with_halo": Case(
        """
        __shared__ double s[16 + 4], w[5];
        if (t < 5) w[t] = x[80 + t];
        int left = i - 2, right = i + 14;
        if (t < 4) s[t + 16] = right < n ? x[right] : 0.0;
        s[t] = left >= 0 && left < n ? x[left] : 0.0;
        __syncthreads();
        double sum = 0;
        for (int k = 0; k < 5; k++) sum += w[k] * s[t + k];
        if (i < n) y[i] = sum * sum;
        """,
        5,
        16,
    ),
    "window_in_two_dimensions": Case(
        """
        __shared__ double s[6][6];
        int tx = threadIdx.x, ty = threadIdx.y, x0 = blockIdx.x * 4, y0 = blockIdx.y * 4;
        for (int k = ty * 4 + tx; k < 36; k += 16) {
          int r = y0 + k / 6 - 1, c = x0 + k % 6 - 1;
          s[k / 6][k % 6] = r >= 0 && r < n && c >= 0 && c < n ? x[r * n + c] : 0.0;
        }
        __syncthreads();
        double sum = 0;
        for (int a = 0; a < 3; a++) for (int b = 0; b < 3; b++) sum += s[ty + a][tx + b] * x[81 + a * 3 + b];
        int row = y0 + ty, column = x0 + tx;
        if (row < n && column < n) y[row * n + column] = sum * s[ty + 1][tx + 1];
        """,
        (3, 3),
        (4, 4),
        9,
    ),
    "two_tiles_in_turn": Case(
        """
        __shared__ double s[2][8];
        double sum = 0;
        s[0][t] = x[t];
        __syncthreads();
        for (int tile = 0; tile < n; tile++) {
          if (tile + 1 < n) s[(tile + 1) & 1][t] = x[(tile + 1) * 8 + t];
          for (int k = 0; k < 8; k++) sum += s[tile & 1][k] * (1 + 0.1 * x[i] * sum);
          __syncthreads();
        }
        y[i] = sum;
        """,
        2,
        8,
        4,
    ),
    "next_tile_in_a_register": Case(
        """
        __shared__ double s[8];
        double sum = 0, next = x[t];
        for (int tile = 0; tile < n; tile++) {
          s[t] = next;
          __syncthreads();
          if (tile + 1 < n) next = x[(tile + 1) * 8 + t];
          for (int k = 0; k < 8; k++) sum += s[k] * s[(k + t) % 8];
          __syncthreads();
        }
        y[i] = sum * next;
        """,
        2,
        8,
        5,
    ),
    "ring_of_rows": Case(
        """
        __shared__ double ring[3][8];
        ring[0][t] = x[t];
        ring[1][t] = x[8 + t];
        for (int row = 1; row + 1 < n; row++) {
          ring[(row + 1) % 3][t] = x[(row + 1) * 8 + t];
          __syncthreads();
          double up = ring[(row - 1) % 3][t], down = ring[(row + 1) % 3][t];
          double left = ring[row % 3][(t + 7) % 8], right = ring[row % 3][(t + 1) % 8];
          y[row * 8 + t] = up * down + left * right;
          __syncthreads();
        }
        """,
        1,
        8,
        9,
    ),
    "padded_transpose": Case(
        """
        __shared__ double tile[8][8 + 1];
        int column = blockIdx.x * 8 + threadIdx.x, row = threadIdx.y;
        for (int k = 0; k < 8; k += 4) if (column < n) tile[row + k][t] = x[(row + k) * n + column];
        __syncthreads();
        int turned = blockIdx.x * 8 + threadIdx.y;
        for (int k = 0; k < 8; k += 4) if (turned + k < n) y[(turned + k) * 8 + t] = sin(tile[t][row + k]);
        """,
        2,
        (8, 4),
        11,
    ),
    "rows_times_a_vector": Case(
        """
        __shared__ double v[4];
        double sum = 0;
        for (int c0 = 0; c0 < n; c0 += 4) {
          if (c0 + t < n) v[t] = x[80 + c0 + t];
          __syncthreads();
          for (int c = 0; c < 4 && c0 + c < n; c++) sum += x[i * n + c0 + c] * v[c];
          __syncthreads();
        }
        y[i] = tanh(sum);
        """,
        2,
        4,
        10,
    ),
}
