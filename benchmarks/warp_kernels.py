"""The kernels in Warp's language. Its compiler reads annotations as objects, so they stay plain here."""

import warp as wp


@wp.kernel
def elementwise(y: wp.array(dtype=wp.float32), x: wp.array(dtype=wp.float32)):
    i = wp.tid()
    y[i] = wp.sin(x[i]) * x[i]


@wp.kernel
def stencil(out: wp.array3d(dtype=wp.float32), a: wp.array3d(dtype=wp.float32)):
    z, y, x = wp.tid()
    n = a.shape[0]
    if x < 1 or y < 1 or z < 1 or x >= n - 1 or y >= n - 1 or z >= n - 1:
        return
    around = a[z, y, x - 1] + a[z, y, x + 1] + a[z, y - 1, x] + a[z, y + 1, x] + a[z - 1, y, x] + a[z + 1, y, x]
    out[z, y, x] = 0.4 * a[z, y, x] + 0.1 * around


@wp.kernel
def matmul(c: wp.array2d(dtype=wp.float32), a: wp.array2d(dtype=wp.float32), b: wp.array2d(dtype=wp.float32)):
    row, column = wp.tid()
    total = wp.float32(0.0)
    for k in range(a.shape[0]):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@wp.kernel(module="unique", module_options={"max_unroll": 17})
def polynomial(y: wp.array(dtype=wp.float32), x: wp.array(dtype=wp.float32)):
    i = wp.tid()
    v = x[i]
    p = wp.float32(0.0)
    for k in range(17):
        p = p * v + 1.0 / wp.float32(17 - k)
    y[i] = p


@wp.kernel
def scale(y: wp.array(dtype=wp.float32), x: wp.array(dtype=wp.float32), a: wp.array(dtype=wp.float32)):
    i = wp.tid()
    y[i] = x[i] * a[0]
