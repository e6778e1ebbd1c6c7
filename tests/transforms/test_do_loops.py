"""Loops that test after an iteration, or leave in its middle, mean the same once they test first; and count, then."""

from __future__ import annotations

import pytest

from kernelgrad import pipeline
from kernelgrad.frontend.unit import Options, Unit
from kernelgrad.ir.ops import For, While
from kernelgrad.ir.traverse import walk

from .checking import BUFFER, observe

# The body of `int f(int *y, int n, int m)`: whether all loops count, or test first with all work in the body.
TESTED = {
    "do { s = s * 3 + j; ++j; } while (j < n); s += j;": "for",
    "do { s = s * 3 + j; } while (++j <= n);": "for",
    "do { s = s * 3 + j; j += 3; } while (n > j);": "for",
    "j = n; do { s = s * 3 + j; } while (--j > 2);": "for",
    "j = n; do { s = s * 3 + j; j -= 2; } while (j >= m);": "for",
    "j = 5; do { s = s * 3 + j; } while (--j);": "for",
    "do { s = s * 3 + j; } while (j++ < n);": "for",
    "for (;;) { s = s * 3 + j; if (++j >= n) break; }": "for",
    "for (;;) { if (j >= n) break; y[j & 7] += j; ++j; } s += j;": "for",
    "while (true) { if (!(j < n)) break; y[j & 7] += j; j += 2; }": "for",
    "unsigned u = 3; do { s = s * 3 + u; ++u; } while (u < 9u);": "for",
    "int last; do { last = j * j; s += last; ++j; } while (j < n); s = s * 5 + last;": "for",
    "for (int a = 0; a < 3; ++a) { int b = a; do { s = s * 3 + b; ++b; } while (b < n); }": "for",
    "for (;;) { s = s * 3 + j; if (j >= n) break; s += 7; ++j; }": "for",
    "int step = m * m + 1; if (j < n) do { s = s * 3 + j; j += step; } while (j < n);": "first",
    "int step = m * m + 1; while (true) { if (j >= n) break; y[j & 7] += j; j += step; } s += j;": "first",
    "unsigned u = n, e = 6, d = 1; if (u < e) do { s = s * 3 + u; u += d * 3; } while (u < e);": "for",
}
# Those stay what they are: a first test might fail, or the bound changes, or what is tested.
KEPT = (
    "unsigned u = n, e = 6, d = m; do { s = s * 3 + u; u += d + 7; } while (u < e && s < 9999);",
    "unsigned u = n; do { s = s * 3 + u; u += 5; } while (u < 9u);",
    "int e = n; do { s = s * 3 + j; ++j; --e; } while (j < e);",
    "do { s = s * 3 + 1; } while (s < n);",
    "int step = m * m + 1; do { s = s * 3 + j; j += step; } while (j < n);",
    "if (j <= n) do { s = s * 3 + j; j += m * m + 1; } while (j < n);",
)


@pytest.mark.parametrize("text", (*TESTED, *KEPT))
def test_the_same(text: str) -> None:
    source = f"__device__ int f(int *y, int n, int m) {{ int s = 1, j = 0; {text} return s; }}"
    module, name = pipeline.lower(Unit("k.cu", source, Options()), "f")
    *_, (_, final) = pipeline.stages(module, name)
    for n, m in ((0, 0), (1, 1), (2, 3), (7, 2), (-3, -5), (6, 6)):
        before, after = (observe(of.functions[name], of, BUFFER, n, m) for of in (module, final))
        assert after == before
    found = [op for op in walk(final.functions[name].body) if isinstance(op, For | While)]
    assert found
    if TESTED.get(text) == "for":
        assert all(isinstance(op, For) for op in found)
    elif text in TESTED:
        assert all(isinstance(op, While) and len(op.before.ops) <= 1 and op.body.ops for op in found)
    else:
        assert any(isinstance(op, While) for op in found)
