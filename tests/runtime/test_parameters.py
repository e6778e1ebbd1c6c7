"""What a kernel tells about its parameters, arguments by name, and how things look when they are shown."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

MODULE = kg.compile("""
struct Pair { float first; int second; };
struct View { float *data; int n; };
__device__ void add(float *to, float value) { atomicAdd(to, value); }
__global__ void k(float *out, const float *in, double a, unsigned n, float *sum, float *state, float unused) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = in[i] * a;
    add(sum, in[i]);
    float *p = state + i;
    *p = *p * 2;
}
__global__ void kinds(const float4 *v, Pair *pairs, View view, void *any, const char *text, float **rows, bool flag) {
    if (flag) { pairs[0].first = v[0].x; view.data[0] = rows[0][0]; ((int *)any)[0] = text[0]; }
}
""")
K = MODULE["k"]


def test_parameters() -> None:
    found = {p.name: p for p in K.parameters}
    assert list(found) == ["out", "in", "a", "n", "sum", "state", "unused"]
    assert found["in"] == kg.Parameter("in", "const float *", True, True, True, False, True, "float32")
    assert found["n"] == kg.Parameter("n", "unsigned int", False, False, True, False, False, "uint32")
    assert [n for n, p in found.items() if p.written] == ["out", "sum", "state"]
    assert [n for n, p in found.items() if p.read] == ["in", "a", "n", "sum", "state"]
    assert [n for n, p in found.items() if not p.floating] == ["n"]
    assert found["a"].dtype == "float64" and not found["a"].pointer


def test_parameters_of_other_kinds() -> None:
    found = {p.name: p for p in MODULE["kinds"].parameters}
    assert [p.dtype for p in found.values()] == ["float32", None, None, None, "int8", None, "bool"]
    assert [n for n, p in found.items() if p.written] == ["pairs", "view", "any"]
    assert [n for n, p in found.items() if p.floating] == ["v", "pairs", "view", "rows"]


@pytest.mark.parametrize(
    ("does", "read", "written"),
    [
        ("out[0] = s.scale;", True, False),
        ("Deep t = s; out[0] = t.view.n;", True, False),
        ("out[0] = s.view.data[1];", True, False),
        ("s.view.data[0] = 1;", False, True),
        ("out[0] = 1;", False, False),
    ],
)
def test_parameters_that_are_structs_with_pointers(does: str, read: bool, written: bool) -> None:
    structs = "struct View { float *data; int n; }; struct Deep { float scale; View view; };"
    s = kg.compile(f"{structs} __global__ void k(float *out, Deep s) {{ {does} }}")["k"].parameters[1]
    assert (s.read, s.written) == (read, written)


def arrays(n: int) -> dict[str, np.ndarray]:
    x = np.arange(1, n + 1, dtype="f4")
    return {"out": np.zeros(n, "f4"), "in": x, "sum": np.zeros(1, "f4"), "state": x.copy()}


def test_arguments_by_name() -> None:
    a = arrays(3)
    K[1, 4](a["out"], a["in"], n=3, a=2.0, unused=0.0, state=a["state"], sum=a["sum"])
    assert a["out"].tolist() == [2, 4, 6] and a["sum"][0] == 6 and a["state"].tolist() == [2, 4, 6]
    assert K.check(1, 4, a["out"], **{"in": a["in"]}, n=3, a=2.0, unused=0.0, state=a["state"], sum=a["sum"]).ok


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"m": 1}, "k: no parameter 'm'\n  __global__ void k"),
        ({"out": 1}, "k: 'out' is given twice, by position and by name"),
        ({"n": 1}, "k: no argument for in, a, sum, state, unused"),
    ],
)
def test_wrong_names(keywords: dict[str, int], words: str) -> None:
    with pytest.raises(kg.ArgumentError, match=words):
        K[1, 4](np.zeros(1, "f4"), **keywords)


def test_adjoints_that_are_not_named_are_not_wanted() -> None:
    g, a = kg.gradient(K, "out, in, a", primal=False, keep="out", assign="in"), arrays(3)
    d_a, d_out = np.zeros(1), np.ones(3, "f4")
    g[1, 4](*(a["out"], a["in"], 2.0, 3), unused=0.0, sum=a["sum"], state=a["state"], d_out=d_out, d_a=d_a)
    assert d_a[0] == 6
    text = g.source_for(1, 4, a["out"], a["in"], 2.0, 3, a["sum"], a["state"], unused=0.0, d_out=d_out, d_a=d_a)
    assert "_d_a" in text and "_d_in" not in text


def test_a_budget_and_names_go_together() -> None:
    g, a = kg.gradient(K, "out, in", tape_budget=1 << 20), arrays(3)
    d_out, d_in = np.ones(3, "f4"), np.zeros(3, "f4")
    named = {"a": 2.0, "n": 3, "unused": 0.0, "sum": a["sum"], "state": a["state"]}
    g[1, 4](a["out"], a["in"], **named, d_out=d_out, d_in=d_in)
    assert d_in.tolist() == [2, 2, 2]
    assert g.tape_bytes(1, 4, a["out"], a["in"], **named) == 0
    assert "launch" in g.explain(1, 4, a["out"], a["in"], **named)


def test_tangents_that_are_not_named_are_not_wanted() -> None:
    t, a = kg.jvp(K, "out, in, a"), arrays(3)
    t_out = np.zeros(3, "f4")
    named = {"a": 2.0, "n": 3, "unused": 0.0, "sum": a["sum"], "state": a["state"]}
    t[1, 4](a["out"], a["in"], **named, t_out=t_out, t_a=np.ones(1))
    assert t_out.tolist() == [1, 2, 3]


def test_how_they_are_shown() -> None:
    g = kg.gradient(K, "out, in", primal=False, keep="out", assign="in", deterministic=True)
    assert repr(g).endswith('float *d_in); primal=False, keep="out", assign="in", deterministic=True>')
    assert isinstance(g, kg.Gradient) and isinstance(K, kg.Kernel)
    assert "<td>in</td><td>const float *</td><td>float32</td><td>yes</td><td></td>" in K._repr_html_()
    for made in (g, kg.jvp(K), kg.hvp(K)):
        assert "<details>" in made._repr_html_() and "&lt;" in made._repr_html_()
    for split in kg.split(K, "out, in"):
        assert "<details>" in split._repr_html_()
    assert "<li><code>__global__ void k(" in MODULE._repr_html_()
    assert "k[1, (4, 2)]" in repr(K[1, (4, 2)])
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kg.nothing
