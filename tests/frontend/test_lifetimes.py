"""Objects end as C++ has it: destructors in host code, at the end of scopes and of full expressions."""

from __future__ import annotations

import pytest

import kernelgrad as kg

CLASSES = r"""
#include <cstdio>
struct G {
  int n;
  G(int n = 0) : n(n) { printf("+%d ", n); }
  G(const G &o) : n(o.n + 100) { printf("c%d ", n); }
  ~G() { printf("-%d ", n); n = 0; }
  int get() const { return n; }
};
template <class T> struct Buffer {
  T *p;
  int n;
  explicit Buffer(int n) : n(n) { cudaMalloc(&p, n * sizeof(T)); }
  ~Buffer() { cudaFree(p); printf("free%d ", n); }
  Buffer(const Buffer &) = delete;
};
struct Two { G a, b; Two() : a(1), b(2) {} };
G make(int n) { G g(n); return g; }
G direct(int n) { return G(n); }
int take(G g) { return g.get(); }
"""

CASES = {
    "{ G a(1), b(2); }": "+1 +2 -2 -1",
    'for (int i = 0; i < 3; i++) { G a(i); if (i == 1) continue; printf("body "); }': "+0 body -0 +1 -1 +2 body -2",
    "for (int i = 0; i < 3; i++) { G a(i); if (i == 1) break; }": "+0 -0 +1 -1",
    '{ if (n > 2) { G x(7); if (n > 3) printf("early "); } G y(8); }': "+7 early -7 +8 -8",
    "direct(4);": "+4 -4",
    "make(5);": "+5 c105 -5 -105",
    '{ G z = direct(6); printf("%d ", z.get()); }': "+6 6 -6",
    '{ const G &r = direct(7); printf("ref%d ", r.get()); }': "+7 ref7 -7",
    '{ G q(3); printf("[%d] ", take(q)); }': "+3 c103 -103 [103] -3",
    '{ Two t; Two u = t; printf("%d %d ", u.a.n, u.b.n); }': "+1 +2 c101 c102 101 102 -102 -101 -2 -1",
    "{ Buffer<float> b(5); Buffer<double> c(6); if (n > 100) return 1; }": "free6 free5",
    "{ G *p = new G[3]; delete[] p; G *q = new G(4); delete q; }": "+0 +0 +0 -0 -0 -0 +4 -4",
    "{ G arr[2]; arr[1].n = 5; }": "+0 +0 -5 -0",
    "{ G many[20]; }": "+0 " * 20 + "-0 " * 20,
    'if (direct(1).get() == 1 && direct(2).get() == 2) printf("yes ");': "+1 +2 -2 -1 yes",
    'if (n == 0 && direct(2).get() == 2) printf("no ");': "",
    'for (int k = 0; k < direct(2).get(); k++) printf("k%d ", k);': "+2 -2 k0 +2 -2 k1 +2 -2",
    'for (G g(1); g.n < 3; g.n++) printf("%d ", g.n);': "+1 1 2 -3",
    'if (G g(n); g.n == 4) printf("four ");\n  printf("then ");': "+4 four -4 then",
    'switch (n) { case 4: { G g(1); break; } default: printf("other "); }': "+1 -1",
    '{ G a(1); if (n == 4) return a.get() + 41; printf("never"); }': "+1 -1",
    '{ G a(1); auto f = [a](int k) { return a.n + k; }; printf("%d ", f(1)); }': "+1 c101 102 -101 -1",
    '{ G list[2] = {G(1), G(2)}; for (auto g : list) printf("%d ", g.n); }': "+1 +2 c101 101 -101 c102 102 -102 -2 -1",
    "{ alignas(8) char room[8]; G *p = new (room) G(3); p->~G(); }": "+3 -3",
}


@pytest.mark.parametrize("body", CASES)
def test_order(body: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = kg.compile(CLASSES + f"int run(int n) {{ cudaDeviceSynchronize();\n  {body}\n  return 0; }}")
    module["run"](4, device="cpu")
    assert capsys.readouterr().out.split() == CASES[body].split()
    assert [a for a in module["run"].state.memory(None) if a.kind != "static"] == []


def test_members_are_copied_and_assigned_by_their_own_functions() -> None:
    """In kernels, too."""
    source = """
    struct Part { float v; __device__ Part() : v(0) {}  __device__ Part(const Part &o) : v(o.v + 1) {}
                  __device__ Part &operator=(const Part &o) { v = o.v * 10; return *this; } };
    struct Whole { Part a; float b; };
    __global__ void k(float *x) { Whole s; s.a.v = x[0]; s.b = 2; Whole t = s; Whole u; u = s;
      x[0] = t.a.v; x[1] = u.a.v; x[2] = u.b + t.b; }"""
    import numpy as np

    x = np.array([3, 0, 0], np.float32)
    kg.compile(source)["k"][1, 1](x)
    assert x.tolist() == [4, 30, 4]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("struct G { int *p; __device__ ~G() { *p = 1; } };\n__global__ void run(int *x) {\nG g;  // here\ng.p = x; }",
         "'G' has a destructor"),
        ("struct G { virtual ~G() { cudaDeviceSynchronize(); } };\nvoid run(G *g) {\ndelete g;  // here\n}",
         "the destructor of 'G' is virtual"),
    ],
)  # fmt: skip
def test_refused(source: str, told: str) -> None:
    with pytest.raises(kg.UnsupportedError, match=told) as caught:
        kg.compile(source)["run"]
    assert caught.value.span.line == 3
