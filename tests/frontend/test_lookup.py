"""Functions by their names."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kernelgrad as kg

SOURCE = """
namespace ns {
enum class E { a, b };
template <int N, bool B> __global__ void red(float *y) { y[0] = N + B; }
template <E e, class T = float> __global__ void en(T *y) { y[0] = e == E::b ? 33 : 0; }
namespace { template <class T> __global__ void anon(T *y) { y[0] = 33; } }
}"""
NAMES = "red<32, true>;ns::red<32, true>;en<ns::E::b>;ns::en<ns::E::b, float>;anon<float>;ns::anon<float>"


@pytest.mark.parametrize("name", NAMES.split(";"))
def test_templates_in_namespaces(name: str) -> None:
    y = np.zeros(1, np.float32)
    kg.compile(SOURCE)[name][1, 1](y)
    assert y[0] == 33


INSTANCES = """
enum class Mode { SUM, MEAN };
enum Old { A, B = 7 };
template <int N, bool F> __global__ void red(float *y) { y[0] = N + F; }
template <Mode M, Old O, class T = float, int K = 4> __global__ void en(T *y) { y[0] = (int)M * 10 + O + K; }
template <class T, T V> __global__ void of_type(float *y) { y[0] = V ? 2 : 3; }
namespace ns {
enum E { P, Q };
template <E e, unsigned char c = 200> __global__ void n(float *y) { y[0] = e + c; }
template __global__ void n<Q>(float *);
}
template __global__ void red<32, true>(float *);
template __global__ void red<-16, false>(float *);
template __global__ void en<Mode::MEAN, B>(float *);
template __global__ void en<(Mode)5, A>(float *);
template __global__ void of_type<bool, true>(float *);
"""


def test_whole_signatures_can_be_looked_up() -> None:
    text = """namespace a { __device__ float f(float x) { return x; } __device__ float f(int x) { return x; }
        template <int N, bool B = true> __global__ void k(float *y) { y[0] = N; }
        template __global__ void k<32>(float *); template <class T> __device__ T g(T x) { return x; } }
        __global__ void k(float *y, const float *x) { y[0] = a::f(x[0]); }"""
    module = kg.compile(text)
    templates = {"__global__ void a::k(float * y)", "__device__ T a::g(T x)"}
    whole = sorted({*module.functions} - templates)
    names = ["a::f(float)", "a::f(int)", "a::k<32, true>", "k"]
    assert [str(module[f]) for f in whole] == [str(module[name]) for name in names]
    with pytest.raises(kg.LookupFailed, match="template"):
        _ = module["__device__ T a::g(T x)"]


def test_what_functions_prints_can_be_looked_up() -> None:
    module = kg.compile(INSTANCES)
    names = [found[1] for f in module.functions if (found := re.match(r"__global__ void (.*<.*>)\(", f))]
    values = {}
    for name in names:
        y = np.zeros(1, np.float32)
        module[name][1, 1](y)
        values[name] = y[0]
    assert values == {
        "red<32, true>": 33,
        "red<-16, false>": -16,
        "en<Mode::MEAN, Old::B, float, 4>": 21,
        "en<(Mode)5, Old::A, float, 4>": 54,
        "of_type<bool, true>": 2,
        "ns::n<ns::E::Q, 200>": 201,
    }


def test_by_kind() -> None:
    """What type checkers are told is what comes."""
    module = kg.compile(
        """__device__ float f(float x) { return x * x; }
        __global__ void k(float *y) { y[0] = f(y[0]); }
        void run(float *y) { k<<<1, 1>>>(y); }"""
    )
    looked_up = {"k": module.kernel, "f": module.device_function, "run": module.host_function}
    for name, of_its_kind in looked_up.items():
        assert of_its_kind(name) is module[name]
        for other in looked_up.keys() - {name}:
            with pytest.raises(kg.LookupFailed, match=f"{other} is not a "):
                of_its_kind(other)
