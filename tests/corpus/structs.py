"""Plain structs: nesting, copies, initialisers, arrays in them and of them, unions, bit-fields, enums."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import F64, I32, U8, U32, Theme, floats, ints, of, zeros

theme = Theme()

PARTICLE = np.dtype([("mass", "f4"), ("pos", "f4", (3,)), ("id", "i4")])
MIXED = np.dtype(
    {"names": ["c", "d", "s", "f"], "formats": ["i1", "f8", "i2", "f4"], "offsets": [0, 8, 16, 20], "itemsize": 24}
)


def particles(rng: np.random.Generator) -> Any:
    p = np.zeros(8, PARTICLE)
    p["mass"], p["pos"], p["id"] = rng.random(8), rng.random((8, 3)), np.arange(8)
    return p


@theme.case(
    """
    struct Particle { float mass; float pos[3]; int id; };
    __global__ void k(Particle* p, float* y, int n) {
      int i = threadIdx.x;
      if (i >= n) return;
      Particle q = p[i];
      q.pos[1] += q.mass;
      q.id *= 10;
      p[i] = q;
      y[i] = p[i].pos[0] + p[i].pos[1] + (&p[i])->pos[2];
    }
    """,
    particles,
    zeros(8),
    6,
    block=8,
)
def array_of_structs(p: Any, y: Any, n: int) -> Any:
    p["pos"][:n, 1] += p["mass"][:n]
    p["id"][:n] *= 10
    y[:n] = p["pos"][:n].sum(1)
    return p, y


@theme.case(
    """
    struct Mixed { signed char c; double d; short s; float f; };
    __global__ void k(Mixed* m) {
      int i = threadIdx.x;
      m[i].d = m[i].c + 0.5; m[i].f = sizeof(Mixed); m[i].s = m[i].s - 1;
    }
    """,
    np.array([(1, 0, 10, 0), (-2, 0, 20, 0)], MIXED),
    block=2,
)
def padding(m: Any) -> Any:
    m["d"], m["f"], m["s"] = m["c"] + 0.5, 24, m["s"] - 1
    return m


@theme.case(
    """
    struct Params { float scale; int n; float shift[2]; };
    __global__ void k(float* y, const float* x, Params p) {
      int i = threadIdx.x;
      if (i < p.n) y[i] = x[i] * p.scale + p.shift[i & 1];
    }
    """,
    zeros(8),
    floats(8),
    {"scale": 2.0, "n": 6, "shift": (1.0, -1.0)},
    block=8,
)
def struct_parameter(y: Any, x: Any, p: Any) -> Any:
    y[:6] = x[:6] * 2 + np.array([1, -1, 1, -1, 1, -1])
    return y


@theme.case(
    """
    struct View { float* data; int rows, cols; };
    __device__ float& at(View v, int r, int c) { return v.data[r * v.cols + c]; }
    __global__ void k(View out, View in) {
      int r = threadIdx.y, c = threadIdx.x;
      if (r < in.rows && c < in.cols) at(out, c, r) = at(in, r, c);
    }
    """,
    {"data": zeros((5, 3)), "rows": 5, "cols": 3},
    {"data": floats((3, 5)), "rows": 3, "cols": 5},
    block=(8, 4),
)
def pointers_inside_a_struct(out: Any, given: Any) -> Any:
    return {**out, "data": given["data"].T}


@theme.case(
    """
    struct Vec { float x, y; };
    struct Line { Vec a, b; int tag; };
    __device__ Vec mid(Line l) { Vec m; m.x = (l.a.x + l.b.x) / 2; m.y = (l.a.y + l.b.y) / 2; return m; }
    __device__ Line flip(const Line& l) { Line r = l; r.a = l.b; r.b = l.a; r.tag++; return r; }
    __global__ void k(float* y, const float* x) {
      int i = threadIdx.x;
      Line l = {{x[i], 1.0f}, {2.0f, x[i + 8]}, i};
      Vec m = mid(l);
      Line f = flip(flip(flip(l)));
      Vec copy = f.a; copy.x = -100;
      y[5 * i] = m.x; y[5 * i + 1] = m.y; y[5 * i + 2] = f.a.x; y[5 * i + 3] = f.b.x;
      y[5 * i + 4] = f.tag + mid(f).x - m.x;
    }
    """,
    zeros((8, 5)),
    floats(16),
    block=8,
)
def nested_structs_by_value(y: Any, x: Any) -> Any:
    a, b, i = x[:8], x[8:], np.arange(8)
    return np.stack([(a + 2) / 2, (1 + b) / 2, np.full(8, 2.0), a, i + 3.0], 1)


@theme.case(
    """
    struct P { int a; float b; int c[2]; };
    __global__ void k(float* y) {
      P p = {1, 2.5f, {3, 4}};
      P q = {1};                                     // the rest is zero
      P r = {.a = 5, .c = {6}};                      // designated
      P s{};
      P t[2] = {{1, 2}, {3, 4, {5, 6}}};
      P u = {7, 8, 9, 10};                           // brace elision
      y[0] = p.a + p.b + p.c[0] * p.c[1]; y[1] = q.a + q.b + q.c[1]; y[2] = r.a + r.b * 100 + r.c[0] + r.c[1];
      y[3] = s.a + s.b + s.c[0]; y[4] = t[0].b + t[1].c[1] + t[0].c[0]; y[5] = u.c[1] * 10 + u.b;
      u = p; u.a = 50; y[6] = u.b + p.a;
      u = {11, 12, {13, 14}}; y[7] = u.a + u.c[1];
      y[8] = P{2, 3}.b;
    }
    """,
    zeros(9),
    block=1,
    options={"std": "c++20"},
)
def initialiser_lists(y: Any) -> Any:
    return np.array([15.5, 1, 11, 0, 8, 108, 3.5, 25, 3])


@theme.case(
    """
    struct Config { int n = 4; float scale = 0.5f; int table[3] = {1, 2, 3}; };
    __global__ void k(float* y) {
      Config a; Config b = {7}; Config c{8, 2.0f};
      y[0] = a.n * a.scale + a.table[2]; y[1] = b.n * b.scale + b.table[0]; y[2] = c.n * c.scale;
    }
    """,
    zeros(3),
    block=1,
)
def default_member_initialisers(y: Any) -> Any:
    return np.array([5, 4.5, 16])


@theme.case(
    """
    struct Node { int value; int next; };
    __global__ void k(int* y) {
      Node list[5];
      for (int i = 0; i < 5; ++i) { list[i].value = i * i; list[i].next = (i + 2) % 5; }
      Node* p = &list[threadIdx.x];
      int s = 0;
      for (int i = 0; i < 4; ++i) { s = s * 20 + p->value; p = &list[p->next]; }
      y[threadIdx.x] = s;
    }
    """,
    zeros(5, I32),
    block=5,
)
def local_array_of_structs(y: Any) -> Any:
    def one(i: int) -> int:
        s = 0
        for _ in range(4):
            s, i = s * 20 + i * i, (i + 2) % 5
        return s

    return np.array([one(i) for i in range(5)])


@theme.case(
    """
    struct Cell { int count; struct { float lo, hi; } range; };
    struct Grid { Cell cells[2][2]; int used; };
    __global__ void k(float* y) {
      Grid g;
      g.used = 0;
      for (int i = 0; i < 4; ++i) { Cell& c = g.cells[i / 2][i % 2]; c.count = i; c.range.lo = -i;
      c.range.hi = 2.0f * i; g.used++; }
      Grid h = g;
      h.cells[1][0].range.hi = 99;
      int i = threadIdx.x;
      y[i] = g.cells[i / 2][i % 2].range.hi + 1000 * h.cells[i / 2][i % 2].range.hi + g.used + h.cells[1][1].range.lo;
    }
    """,
    zeros(4),
    block=4,
)
def structs_with_arrays(y: Any) -> Any:
    return np.array([0, 2002, 4 + 99000, 6006]) + 4 - 3


@theme.case(
    """
    union Bits { float f; unsigned u; unsigned char b[4]; };
    __global__ void k(unsigned* y, float* z, const float* x) {
      int i = threadIdx.x;
      Bits v; v.f = x[i];
      y[i] = v.u;
      v.b[3] ^= 0x80;                              // flips the sign
      z[i] = v.f;
    }
    """,
    zeros(8, U32),
    zeros(8),
    floats(8),
    block=8,
    exact=True,
)
def union(y: Any, z: Any, x: Any) -> Any:
    return x.view(U32), -x


@theme.case(
    """
    struct Value { int kind; union { int i; float f; struct { short lo, hi; }; }; };
    __global__ void k(float* y) {
      Value a; a.kind = 0; a.i = 0x00030002;
      Value b; b.kind = 1; b.f = 2.5f;
      y[0] = a.lo; y[1] = a.hi; y[2] = b.kind ? b.f : b.i; y[3] = sizeof(Value);
    }
    """,
    zeros(4),
    block=1,
)
def anonymous_union(y: Any) -> Any:
    return np.array([2, 3, 2.5, 8])


@theme.case(
    """
    struct Flags { unsigned a : 3; unsigned b : 5; int c : 4; unsigned wide : 20; };
    __global__ void k(int* y) {
      int i = threadIdx.x;
      Flags f = {1u, 2u, 3, 4u};
      f.a = i; f.b += 30; f.c = i - 3; f.wide = 0x12345 + i;
      f.a++;
      y[4 * i] = f.a; y[4 * i + 1] = f.b; y[4 * i + 2] = f.c; y[4 * i + 3] = f.wide;
    }
    """,
    zeros((8, 4), I32),
    block=8,
)
def bit_fields(y: Any) -> Any:
    i = np.arange(8)
    return np.stack([(i + 1) % 8, np.full(8, 0), (i - 3 + 8) % 16 - 8, 0x12345 + i], 1)


@theme.case(
    """
    struct Packed { bool on : 1; unsigned char level : 4; unsigned : 3; long long big : 40; int last : 7; };
    struct Tagged { unsigned kind : 4, rest : 28; __device__ Tagged(int k) : kind(k), rest(k * 1000) {} };
    __global__ void k(int* y) {
      int i = threadIdx.x;
      Packed p = {};
      p.on = i & 1; p.level = i; p.big = -(1LL << 33) * i; p.last = -i;
      Packed q = p; q.on = !p.on; q.last++;
      Tagged t(i + 3);
      y[8 * i] = p.on; y[8 * i + 1] = p.level; y[8 * i + 2] = (int)(p.big >> 33); y[8 * i + 3] = p.last;
      y[8 * i + 4] = q.on * 10 + q.last; y[8 * i + 5] = t.kind; y[8 * i + 6] = t.rest; y[8 * i + 7] = sizeof(p);
    }
    """,
    zeros((8, 8), I32),
    block=8,
)
def bit_fields_of_all_kinds(y: Any) -> Any:
    i = np.arange(8)
    on = i & 1
    rest = [on, i, -i, -i, (1 - on) * 10 - i + 1, i + 3, (i + 3) * 1000, np.full(8, 8)]
    return np.stack(rest, 1)


@theme.case(
    """
    enum Color { RED, GREEN = 5, BLUE };
    enum class Mode : unsigned char { off, on = 3 };
    enum { WIDTH = 16, MASK = WIDTH - 1 };
    struct S { enum Kind { A, B }; Kind kind; };
    __device__ int f(Mode m) { switch (m) { case Mode::off: return 1; case Mode::on: return 2; } return 0; }
    __global__ void k(int* y, Color c, Mode m) {
      y[0] = RED + GREEN * 10 + BLUE * 100; y[1] = (int)Mode::on; y[2] = MASK; y[3] = c == BLUE;
      y[4] = f(m) + f(Mode::off);
      S s; s.kind = S::B; y[5] = s.kind; Color d = static_cast<Color>(5); y[6] = d == GREEN; y[7] = sizeof(Mode);
    }
    """,
    zeros(8, I32),
    6,
    3,
    block=1,
)
def enums(y: Any, c: int, m: int) -> Any:
    return np.array([650, 3, 15, 1, 3, 1, 1, 1])


@theme.case(
    """
    typedef float real;
    typedef struct { real re, im; } complex_t;
    using index_t = long long;
    typedef real row_t[3];
    __global__ void k(real* y) {
      row_t r = {1, 2, 3};
      complex_t c = {3, 4};
      index_t i = 2;
      typedef int local_t; local_t l = 5;
      using pair = complex_t; pair p; p.re = 10; p.im = 20;
      y[0] = r[i]; y[1] = c.re * c.re + c.im * c.im; y[2] = sizeof(index_t) + l; y[3] = p.im;
    }
    """,
    zeros(4),
    block=1,
)
def aliases(y: Any) -> Any:
    return np.array([3, 25, 13, 20])


@theme.case(
    """
    struct __align__(16) Q { float a, b, c; };
    struct alignas(8) H { unsigned char x; };
    __global__ void k(int* y, Q* q) {
      y[0] = sizeof(Q); y[1] = alignof(Q); y[2] = sizeof(H); y[3] = (int)((char*)&q[1] - (char*)q);
      y[4] = offsetof(Q, c);
      y[5] = (int)q[1].b;
    }
    """,
    zeros(6, I32),
    np.array([(1, 2, 3), (4, 5, 6)], np.dtype({"names": list("abc"), "formats": ["f4"] * 3, "itemsize": 16})),
    block=1,
)
def alignment(y: Any, q: Any) -> Any:
    return np.array([16, 16, 8, 16, 8, 5])


@theme.case(
    """
    struct Pair { float first, second; };
    __global__ void k(Pair* p) {
      int i = threadIdx.x;
      Pair v = p[i];
      p[i] = Pair{v.second, v.first * 2};
    }
    """,
    floats(16),
    block=8,
)
def flat_array_for_a_struct_pointer(p: Any) -> Any:
    v = p.reshape(-1, 2)
    return np.stack([v[:, 1], v[:, 0] * 2], 1).ravel()


@theme.case(
    """
    struct Acc { double sum; int n; };
    __device__ void add(Acc* a, double v) { a->sum += v; a->n++; }
    __device__ Acc merge(Acc a, Acc b) { a.sum += b.sum; a.n += b.n; return a; }
    __global__ void k(double* y, const double* x, int n) {
      Acc even = {0, 0}, odd = {0, 0};
      for (int i = 0; i < n; ++i) add(i % 2 ? &odd : &even, x[i]);
      Acc all = merge(even, odd);
      y[0] = even.sum; y[1] = odd.n; y[2] = all.sum / all.n; y[3] = even.n;
    }
    """,
    zeros(4, F64),
    floats(11, dtype=F64),
    11,
    block=1,
)
def struct_through_a_pointer(y: Any, x: Any, n: int) -> Any:
    return np.array([x[::2].sum(), 5, x.mean(), 6])


@theme.case(
    """
    struct Rgb { unsigned char r, g, b; };
    __global__ void k(unsigned char* grey, const Rgb* image, int n) {
      int i = threadIdx.x;
      if (i < n) grey[i] = (image[i].r * 77 + image[i].g * 150 + image[i].b * 29) >> 8;
    }
    """,
    zeros(10, U8),
    ints((10, 3), 0, 256, U8),
    10,
)
def three_byte_struct(grey: Any, image: Any, n: int) -> Any:
    return (image.astype(int) @ [77, 150, 29]) >> 8


@theme.case(
    """
    struct S { int a; float b; };
    __global__ void k(int* y) {
      int i = threadIdx.x;
      S s;
      if (i & 1) s = S{i, 1.0f}; else { s.a = -i; s.b = 2.0f; }
      S t = i > 2 ? s : S{100, 3.0f};
      for (int j = 0; j < i; ++j) { S u = t; u.a += j; t = u; }
      y[i] = t.a * 10 + (int)t.b;
    }
    """,
    zeros(6, I32),
    block=6,
)
def structs_across_control_flow(y: Any) -> Any:
    def one(i: int) -> int:
        a, b = (i, 1) if i & 1 else (-i, 2)
        if i <= 2:
            a, b = 100, 3
        return (a + sum(range(i))) * 10 + b

    return np.array([one(i) for i in range(6)])


@theme.case(
    """
    struct Empty {};
    struct Holder { Empty e; int v; };
    __global__ void k(int* y) { Holder h; h.v = sizeof(Empty) * 10 + sizeof(Holder); y[0] = h.v; }
    """,
    of([0], I32),
    block=1,
)
def empty_struct(y: Any) -> Any:
    return np.array([18])


@theme.case(
    """
    struct M { float v[2][2]; };
    struct N { M m; int n; };
    __global__ void k(float* y) {
      M a = {{{1, 2}, {3, 4}}};                      // all braces written
      M b; b = a; b.v[1][0] = 9;
      M c[2]; c[0] = b; c[1] = c[0];
      N n = {{{{5, 6}, {7, 8}}}, 10};
      N o = {{5, 6, 7}, 11};                         // some left out
      float d[2][2] = {{1}, {2}};
      y[0] = a.v[1][0]; y[1] = c[1].v[1][0]; y[2] = n.m.v[1][1] + n.n; y[3] = o.m.v[1][0] + o.n;
      y[4] = d[1][0] + d[0][1];
    }
    """,
    zeros(5),
    block=1,
)
def nested_braces(y: Any) -> Any:
    return np.array([3, 9, 18, 18, 2])
