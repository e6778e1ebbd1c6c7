"""What the author of a text calls an error, defaults of macros, and deduction guides that clang passes over."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import kernelgrad as kg


def _run(source: str, **options: list[str]) -> float:
    y = np.zeros(1, np.float32)
    kg.compile(source, **options)["k"][1, 1](y, np.array([3.0], np.float32))
    return float(y[0])


def _kernel(value: str) -> str:
    return f"__global__ void k(float *y, const float *x) {{ y[0] = x[0] * {value}; }}\n"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ('static_assert(sizeof(int) == 8, "no");\n', "1:15"),
        ("namespace a {\nstatic_assert(sizeof(int) == 8); }\n", "2:15"),
        ("#define CHECK(x) static_assert(x, #x)\nCHECK(sizeof(int) == 8);\n", "2:1"),
        ("void host(Foo f) { f.x(); }\nstatic_assert(sizeof(int) == 8);\n", "2:15"),
        ("constexpr int N = 3;\nstatic_assert(N % 2 == 0);\n", "2:15"),
        ("#ifndef CONFIG\n#error define CONFIG\n#endif\n", "2:2"),
    ],
)
def test_what_the_author_calls_an_error_is_one(source: str, place: str) -> None:
    with pytest.raises(kg.ParseError, match=rf"kernel\.cu:{place}: error: (static assertion failed|define CONFIG)"):
        _run(source + _kernel("2"))


@pytest.mark.parametrize(
    "source",
    [
        "static_assert(sizeof(int) == 4);\n",
        "typedef Foo real;\nstatic_assert(sizeof(real) == 8);\n",  # about something that does not parse
        "template <class T> struct A { static_assert(sizeof(T) == 8); };\n",
        "#ifdef CONFIG\n#error no CONFIG here\n#endif\n",
    ],
)
def test_what_is_no_error_of_the_author(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _run(source + _kernel("2")) == 6


def _told(source: str, **options: list[str]) -> tuple[float, str]:
    """What it computes, and all warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        value = _run(source, **options)
    return value, "\n".join(str(w.message) for w in told)


@pytest.mark.parametrize(
    "text", ["#ifndef CONFIG\n#error define CONFIG\n#endif\n", "static_assert(sizeof(int) == 8);\n"]
)
def test_a_missing_header_may_be_the_reason(text: str) -> None:
    value, told = _told(f'#include "cfg.h"\n{text}{_kernel("2")}')
    assert value == 6 and re.search(r"kernel\.cu:[23]: .*the header 'cfg\.h' was not found", told)


def test_defaults_after_a_missing_header_are_told() -> None:
    header, default = '#include "cfg.h"\n', "#ifndef S\n#define S 2\n#endif\n"
    for rest in (_kernel("S"), f"#define T S\n{_kernel('T')}"):
        value, told = _told(header + default + rest)
        assert value == 6 and "kernel.cu:2: 'S' has its default here" in told
    assert _told(header + default + _kernel("4"))[1].count("\n") == 0  # not used
    assert "default" not in _told(default + header + _kernel("S"))[1]  # the header comes later
    assert _told(default + _kernel("S")) == (6, "")
    value, told = _told(header + default + _kernel("S"), defines=["S=5"])
    assert value == 15 and "default" not in told


_CLASS = "template <class T> struct A { T v; __host__ __device__ A(T a) : v(a) {} };\n"


@pytest.mark.parametrize("guide", ["A(float) -> A<int>;", "template <class T> A(T) -> A<double>;"])
def test_deduction_guides_of_the_host_are_refused_where_they_may_decide(guide: str) -> None:
    deduced = "__global__ void k(float *y, const float *x) { A a(x[0] * 0.5f); y[0] = sizeof(a.v) * a.v; }"
    named = "__global__ void k(float *y, const float *x) { A<float> a(x[0] * 0.5f); y[0] = sizeof(a.v) * a.v; }"
    with pytest.raises(kg.UnsupportedError, match=r"kernel\.cu:3:47: error: a deduction guide of 'A'"):
        _run(f"{_CLASS}{guide}\n{deduced}")
    assert _run(f"{_CLASS}{guide}\n{named}") == 6
    wanted = 4 if "int" in guide else 12
    annotated = guide.replace("A(", "__host__ __device__ A(", 1)
    assert _run(f"{_CLASS}{annotated}\n{deduced}") == wanted
