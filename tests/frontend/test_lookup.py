"""Functions by their names."""

from __future__ import annotations

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
