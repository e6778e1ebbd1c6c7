"""Random damage to valid sources. A mutant is refused with an error of kernelgrad's, or means what its text says.

`python -m tests.frontend.mutations 5000` tries that many. What a mutant means is told by texts that parse whole: the
mutant alone if clang accepts it, with code of a host behind that never parses; otherwise, where clang finds errors in
the mutant itself, a kernel that still comes out must be the one of the unharmed text, or of one in which some lines are
as they were: a function that no longer parses may be one that nothing calls any more.
"""

from __future__ import annotations

import random
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import product

from kernelgrad.errors import KernelGradError
from kernelgrad.frontend.text import Token, tokens
from kernelgrad.frontend.unit import Options, Unit
from kernelgrad.ir.printer import print_module
from kernelgrad.pipeline import lower

HOST = """
#include "not_there.h"
typedef MissingReal host_real;
class Solver : public MissingBase { Vec v; public: Solver(Vec w) : v(w) {} void run() { launch(v); } };
int main() { Vec v; MPI_Init(&v); Solver s(v); s.run(); return 0; }
"""
BASES = (
    """
typedef float real;
const int COUNT = 3, OTHER = 4;
enum Mode { FIRST, SECOND = 5, THIRD };
#define SCALE 2.5f
struct Vec2 { real a; real b; };
struct Pair : Vec2 { int tag; __device__ real sum() const { return a + b; } };
__constant__ float table[4] = {1, 2, 3, 4};
__device__ real square(real v, int times = COUNT) { for (int j = 0; j < times; j++) v *= 1.5f; return v * v; }
__device__ Pair make(real a, real b) { Pair p; p.a = a; p.b = b; p.tag = THIRD; return p; }
__global__ void unrelated(float *z) { z[0] = OTHER; }
__global__ void k(float *y, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Pair p = make(x[i], SCALE);
  real s = 0;
  for (int j = 0; j < COUNT; ++j) { s += table[j] * square(p.sum()); }
  y[i] = s + p.tag;
  y[i + n] = (int)SECOND;
}
""",
    """
namespace lib {
template <typename T> struct Limits { static const int bits = 16; };
template <> struct Limits<float> { static const int bits = 32; };
template <typename T, int N> __device__ T power(T v) { T r = 1; for (int j = 0; j < N; j++) r = r * v; return r; }
__device__ double mix(double a, double b) { return a * 0.25 + b; }
__device__ float mix(float a, float b) { return a * 0.5f + b; }
}
using lib::power;
using Index = unsigned int;
static const float weights[] = {0.5f, 0.25f};
struct Body { float m; __device__ Body(float mass) : m(mass) {} __device__ float energy(float v) { return m * v; } };
__device__ float bodies[8];
__global__ void k(float *y, const float *x, int n) {
  __shared__ float tile[32];
  Index i = threadIdx.x;
  tile[i] = x[i] * weights[1];
  __syncthreads();
  Body body(tile[(i + 1) % n]);
  auto twice = [=](float v) { return 2 * v + lib::mix(v, 1.0f); };
  switch (i & 3) {
    case 0: y[i] = power<float, 3>(x[i]); break;
    case 1: y[i] = body.energy(2); break;
    default: y[i] = twice(x[i]);
  }
  bodies[i] = y[i];
  y[i] += lib::Limits<float>::bits;
}
""",
)  # fmt: skip


def mutant(base: str, choose: random.Random) -> str:
    """The text with one to three small changes."""
    if choose.random() < 0.1:
        return _break_elsewhere(base, choose)
    for _ in range(choose.choice((1, 1, 2, 3))):
        base = choose.choice(_CHANGES)(base.encode(), choose).decode(errors="replace")
    return base


def _pick(data: bytes, choose: random.Random, kind: str = "") -> Token:
    return choose.choice([t for t in tokens(data) if not kind or t.kind == kind] or list(tokens(data)))


def _delete(data: bytes, choose: random.Random) -> bytes:
    """A blank stays, here as below: of two names in one, nobody could know that it was two."""
    token = _pick(data, choose)
    return data[: token.start] + b" " + data[token.end :]


def _repeat(data: bytes, choose: random.Random) -> bytes:
    token = _pick(data, choose)
    return data[: token.end] + b" " + token.text + data[token.end :]


def _rename(data: bytes, choose: random.Random) -> bytes:
    token = _pick(data, choose, "name")
    other = choose.choice((b"Unknown", b"x", b"float", _pick(data, choose, "name").text))
    return data[: token.start] + other + data[token.end :]


def _swap(data: bytes, choose: random.Random) -> bytes:
    found = list(tokens(data))
    k = choose.randrange(len(found) - 1)
    a, b = found[k], found[k + 1]
    return b" ".join((data[: a.start], b.text, data[a.end : b.start], a.text, data[b.end :]))


def _drop_brace(data: bytes, choose: random.Random) -> bytes:
    token = choose.choice([t for t in tokens(data) if t.text in (b"{", b"}", b"(", b")", b";")])
    return data[: token.start] + b" " + data[token.end :]


def _drop_line(data: bytes, choose: random.Random) -> bytes:
    lines = data.split(b"\n")
    lines[choose.randrange(len(lines))] = b""
    return b"\n".join(lines)


def _break_elsewhere(base: str, choose: random.Random) -> str:
    """An error before the device code, in something that it does not use."""
    return choose.choice(("Missing g(Other o);", "struct Q { Missing m; };", "int h() { return u; }")) + base


_CHANGES = (_delete, _repeat, _rename, _swap, _drop_brace, _drop_line)


def meaning(source: str) -> str:
    """The kernel's IR, or "error". Anything but an error of kernelgrad's passes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module, _ = lower(Unit("k.cu", source, Options()), "k")
    except KernelGradError:
        return "error"
    return re.sub(r"k\.cu:[\d:]+", "", print_module(module))


def check(source: str, base: str) -> str:
    """What became of a mutant: "valid", "refused" or "unharmed"; raises where it is none of these."""
    together = meaning(source + HOST)
    if not Unit("k.cu", source, Options()).errors:
        alone = meaning(source)
        assert together == alone, f"broken code elsewhere changes the kernel:\n{source}"
        return "refused" if alone == "error" else "valid"
    known = together in ("error", _unharmed(base)) or any(meaning(text) == together for text in _repaired(source, base))
    assert known, f"a kernel of a text that does not parse:\n{source}"
    return "refused" if together == "error" else "unharmed"


def _repaired(source: str, base: str) -> Iterator[str]:
    """Texts without errors between the two, line by line."""
    lines = list(zip(source.split("\n"), base.split("\n"), strict=True))
    for chosen in product(*(sorted(set(line)) for line in lines)):
        text = "\n".join(chosen)
        if not Unit("k.cu", text, Options()).errors:
            yield text


@cache
def _unharmed(base: str) -> str:
    return meaning(base)


def run(count: int, seed: int = 0) -> dict[str, int]:
    choose = random.Random(seed)
    outcomes = dict.fromkeys(("valid", "refused", "unharmed"), 0)
    for _ in range(count):
        base = choose.choice(BASES)
        outcomes[check(mutant(base, choose), base)] += 1
    return outcomes


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
