"""Derivatives that the source gives: to which functions they belong, and which of them are refused, where those are
reached and only there."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg

_CLAD_GRADIENT = """
__device__ float f(float x) { return x * x; }
namespace clad { namespace custom_derivatives {
__device__ void f_grad(float x, float *dx) { *dx += 10; }
} }
"""
_CLAD_OF_INTRINSIC = """
namespace clad::custom_derivatives { __device__ void sinf_pullback(float x, float d, float *dx) { *dx += d; } }
__device__ float f(float x) { return sinf(x); }
"""
_ENZYME = """
__device__ float f(float x) { return x * x; }
__device__ float augmented(float x, float *) { return x * x; }
__device__ void reverse(float x, float *dx) { *dx += 10; }
void *__enzyme_register_gradient_f[] = {(void *)f, (void *)augmented, (void *)reverse};
"""
_INACTIVE = "__device__ float f(float x) { return x * x; }\nvoid *__enzyme_inactivefn[] = {(void *)f};"
_INACTIVE_VARIABLE = """
__device__ float c = 1;
__device__ float f(float x) { return c * x * x; }
__device__ void *__enzyme_inactive_global_c = (void *)&c;
"""
_PULLBACK = "__device__ void f_pullback(float x, float d, float *dx) { *dx += 10 * d; }"
_BROUGHT = f"__device__ float f(float x) {{ return x * x; }}\nnamespace lib {{ {_PULLBACK} }}\n"
_USING = _BROUGHT + "namespace clad::custom_derivatives { using lib::f_pullback; }"
_USING_SPACE = _BROUGHT + "namespace clad::custom_derivatives { using namespace lib; }"
_ALIAS = _BROUGHT + "namespace clad { namespace custom_derivatives = ::lib; }"
_REFUSED = [
    _CLAD_GRADIENT, _CLAD_OF_INTRINSIC, _ENZYME, _INACTIVE, _INACTIVE_VARIABLE, _USING, _USING_SPACE, _ALIAS
]  # fmt: skip
_KERNELS = """
__device__ float g(float x) { return f(x) + 1; }
__global__ void k(float *y, const float *x) { y[0] = g(x[0]); }
__global__ void other(float *y, const float *x) { y[0] = 3 * x[0]; }
"""


@pytest.mark.parametrize("source", _REFUSED)
def test_refused_where_reached(source: str) -> None:
    module = kg.compile(source + _KERNELS)
    for derivative in (kg.gradient, kg.jvp, kg.split):
        with pytest.raises(kg.UnsupportedError, match=r"a derivative of its own: not supported"):
            derivative(module["k"])
    y = np.zeros(1, np.float32)
    module["other"][1, 1](y, np.array([2.0], np.float32))
    assert y[0] == 6


@pytest.mark.parametrize("source", _REFUSED)
def test_plain_launches_work(source: str) -> None:
    module = kg.compile(source + _KERNELS)
    y = np.zeros(1, np.float32)
    module["k"][1, 1](y, np.array([2.0], np.float32))
    value = np.sin(2) if source == _CLAD_OF_INTRINSIC else 4
    assert np.isclose(y[0], value + 1) and np.isclose(module["g"].execute(2.0), value + 1)
    with pytest.raises(kg.UnsupportedError, match="a derivative of its own"):
        kg.check_gradient(module["g"], args=(2.0,))


@pytest.mark.parametrize(
    "given",
    [
        f"namespace clad::custom_derivatives {{ inline namespace v1 {{ {_PULLBACK} }} }}",
        f"namespace clad::custom_derivatives {{ namespace {{ {_PULLBACK} }} }}",
        f"namespace clad {{ namespace SPACE {{ {_PULLBACK} }} }}",
    ],
)
def test_other_places_and_spellings(given: str) -> None:
    source = "__device__ float f(float x) { return x * x; }\n" + given + _KERNELS
    module = kg.compile(source, defines={"SPACE": "custom_derivatives"})
    d_x, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    kg.gradient(module["k"])[1, 1](np.zeros(1, np.float32), one, one.copy(), d_x)
    assert d_x[0] == 10


@pytest.mark.parametrize(
    "given",
    [
        "namespace clad { namespace custom_derivatives { void f_pullback(float x, clad::array_ref<float> d) {} } }",
        "namespace clad { namespace custom_derivatives { ValueAndPushforward<float> f_pushforward(float x); } }",
        "Missing df(float x);\nvoid *__enzyme_register_gradient_f[] = {(void *)f, (void *)df};",
    ],
)
def test_those_that_do_not_parse_are_refused_too(given: str) -> None:
    module = kg.compile(
        f"__device__ float f(float x) {{ return x * x; }}\n{given}\n"
        "__global__ void k(float *y, const float *x) { y[0] = f(x[0]); }\n"
        "__global__ void j(float *y, const float *x) { y[0] = x[0]; }\n"
    )
    with pytest.raises(kg.UnsupportedError, match="'f' has a derivative of its own here, which does not parse"):
        kg.gradient(module["k"])
    assert repr(module["j"])


# ---- those that work


_F = "__device__ float f(float x) { return x * x; }\n"
_CLADS = "namespace clad { namespace custom_derivatives { %s } }\n"
_PULLBACK = "__device__ void f_pullback(float x, float d, float *dx) { *dx += 10 * d; }"
_BY_REFERENCE = "__device__ void f_pullback(float x, float d, float &dx) { dx += 10 * d; }"
_PUSHFORWARD = "__device__ ValueAndPushforward<float, float> f_pushforward(float x, float t) { return {f(x), 6 * t}; }"
_TWO = f"namespace a {{ {_F} }} namespace b {{ {_F} }} using b::f;\n"
_TEMPLATE = "template <class T> __device__ void f_pullback(T x, T d, T *dx) { *dx += 8 * d; }"
_TEMPLATES = """template <class T> __device__ T g(T x) { return x * x; }
__device__ double f(double x) { return g(x); }
"""
_PAIR = "template <class T, class U> struct ValueAndPushforward { T value; U pushforward; };\n"


def slope(source: str, kernel: str = "k") -> float:
    """The derivative at 2."""
    y, x, d_x = np.zeros(1, np.float32), np.full(1, 2, np.float32), np.zeros(1, np.float32)
    kg.gradient(kg.compile(source)[kernel], "y, x")[1, 1](y, x, np.ones(1, np.float32), d_x)
    return float(d_x[0])


@pytest.mark.parametrize(
    "source, expected",
    [
        (_F + _CLADS % _PULLBACK, 10),
        (_CLADS % f"{_F}{_PULLBACK.replace('10', '9')}\n" + _F + _CLADS % "", 9),  # before the function
        (_F + f"namespace kernelgrad::custom_derivatives {{ {_BY_REFERENCE} }}\n", 10),
        (_F + _CLADS % _PULLBACK.replace("float", "double"), None),
        ("__device__ double f(double x) { return x; }\n" + _F + _CLADS % _PULLBACK.replace("float", "double"), 4),
        (_TWO + _CLADS % f"namespace a {{ {_PULLBACK} }}", 4),
        (_TWO + _CLADS % f"namespace b {{ {_PULLBACK} }}", 10),
        ("struct S { __device__ float f(float x) { return 0; } };\n" + _F + _CLADS % _PULLBACK, 10),
        (_PAIR + _F + _CLADS % _PUSHFORWARD, 6),
        (_F + _CLADS % _TEMPLATE, 8),
        (_TEMPLATES + _CLADS % _TEMPLATE.replace("f_", "g_"), 8),
        (_F + _CLADS % f"{_TEMPLATE} {_PULLBACK}", 10),
    ],
)
def test_which_functions_have_one(source: str, expected: float | None) -> None:
    source += "__global__ void k(float *y, const float *x) { y[0] = f(x[0]); }"
    if expected is not None:
        assert slope(source) == expected
        return
    with pytest.raises(kg.UnsupportedError, match="does not fit 'f'"):
        slope(source)


def refusal(functions: str, given: str, call: str) -> kg.UnsupportedError:
    source = f"{functions}\n{_CLADS % given}__global__ void k(float *y, const float *x) {{ y[0] = {call}; }}"
    kernel = kg.compile(source)["k"]
    y = np.zeros(1, np.float32)
    kernel[1, 1](y, np.full(1, 2, np.float32))  # runs all the same
    with pytest.raises(kg.UnsupportedError) as caught:
        kg.gradient(kernel, "y, x")
    return caught.value


def test_the_signature_that_is_wanted_is_told() -> None:
    own = "const float *p, float a, int n, const float2 &v"
    function, call = f"__device__ float f({own}) {{ return a * p[n] * v.x; }}", "f(x, x[0], 0, make_float2(1, 2))"
    wanted = f"__device__ void f_pullback({own}, float d_result, float *d_p, float *d_a, float2 *d_v)"
    for given in ("void f_pullback(float x, float d, float *dx) {}", f"void f_pullback({own}, float d) {{}}"):
        error = refusal(function, f"__device__ {given}", call)
        assert wanted in str(error) and error.span.line == 2
    wanted = f"__device__ float f_tangent({own}, const float *t_p, float t_a, const float2 &t_v)"
    assert wanted in str(refusal(function, "__device__ float f_tangent(float x, float t) { return t; }", call))


_AT = "__device__ float f(const float *x) { return *x * *x; }"
_S = "struct S { __device__ float f(float x) const { return x; } };"
_BY_POINTERS = "struct V { const float *p; }; __device__ float f(V v, float x) { return *v.p * x; }"
_OF = "__device__ void f_pullback(float x, float d, float *dx) { %s }"
_OF_AT = "__device__ void f_pullback(const float *x, float d, float *dx) { %s }"
_WITH_OUTPUT = "__device__ void f_pullback(float x, float *o, float d, float *dx, float *d_o) { *dx += d; }"
_OF_OUTPUT = "__device__ void f_pullback(float x, float *o, float *dx, float *d_o) { *dx += *d_o; }"


@pytest.mark.parametrize(
    "functions, given, call, message",
    [
        (
            _F,
            _OF % "*dx += fminf(d, 1.0f);",
            "f(x[0])",
            "3:114: error: what a custom derivative gives 'x' is not linear",
        ),
        (_F, _OF % "*dx += d * d;", "f(x[0])", "is not linear"),
        (_F, _OF % "*dx += d + 1;", "f(x[0])", "is not linear"),
        (_F, _OF % "float s = 1; for (int k = 0; k < 3; ++k) s += s * d; *dx += s;", "f(x[0])", "is not linear"),
        (_F, _OF % "*dx += 2 * x;", "f(x[0])", "does not depend on"),
        (_F, _OF % "if (d > 0) *dx += d;", "f(x[0])", "a branch in a custom derivative depends on the adjoint"),
        (_F, _OF % "*dx += unknown(d);", "f(x[0])", "does not parse"),
        (
            _F,
            "template <class T> __device__ void f_pullback(T x, int d) {}",
            "f(x[0])",
            "as a template, which does not fit",
        ),
        (_AT, _OF_AT % "*dx = d;", "f(x)", "other than add to it"),
        (_AT, _OF_AT % "*dx += d * *dx;", "f(x)", "other than add to it"),
        (_AT, _OF_AT % "float *p = *x > 0 ? dx : dx + 1; *p += d;", "f(x)", "decided by a branch"),
        (_AT, _OF_AT % "*dx += 1;", "f(x)", "does not depend on"),
        (_AT, _OF_AT % '*dx += d; printf("x");', "f(x)", "a 'print' in a custom derivative"),
        (
            _AT,
            "__device__ float f_tangent(const float *x, const float *t) { return *t; }",
            "f(x)",
            "which is a pointer",
        ),
        (
            _S,
            "__device__ void f_pullback(const S *s, float x, float d, S *, float *dx) {}",
            "S().f(x[0])",
            "of its own: not",
        ),
        (
            "__device__ float f(float x, float *o) { *o = x; return x; }",
            _WITH_OUTPUT,
            "f(x[0], y)",
            "and writes to memory",
        ),
        ("__device__ void f(float x, float *o) { *o = x; }", _OF_OUTPUT, "(f(x[0], y), 1.0f)", "returns nothing"),
        (
            _BY_POINTERS,
            "__device__ void f_pullback(V v, float x, float d, V *dv, float *dx) {}",
            "f(V{x}, x[0])",
            "pointers in",
        ),
    ],
)
def test_what_is_no_derivative_is_refused(functions: str, given: str, call: str, message: str) -> None:
    assert message in str(refusal(functions, given, call))


# ---- given beside the source


def test_text_beside_the_source() -> None:
    source = "namespace ns { __device__ float h(float x) { return 5 * x; } __device__ float f(float x) { return x; } }"
    source += "__global__ void k(float *y, const float *x) { y[0] = ns::f(x[0]); }"
    pullback = "__device__ void f_pullback(float x, float d, float *dx) { *dx += d * h(x); }"
    kernel = kg.compile(source, custom=kg.custom_gradient("ns::f", pullback))["k"]
    d_x = np.zeros(1, np.float32)
    kg.gradient(kernel, "y, x")[1, 1](np.zeros(1, np.float32), np.full(1, 2, np.float32), np.ones(1, np.float32), d_x)
    assert d_x[0] == 10


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: kg.custom_gradient("f"), "neither a pullback nor a tangent"),
        (lambda: kg.custom_gradient("f", "void g_pullback() {}"), "is a function 'f_pullback'"),
        (lambda: kg.custom_gradient("f(float)", "void f_pullback() {}"), "wants the name of a function"),
        (lambda: kg.custom_gradient("f", 5), "pullback is a string, got int"),
        (lambda: kg.custom_gradient(lambda v: None), "say what it writes"),
        (lambda: kg.custom_gradient("f", _PULLBACK, writes="v"), "are for Python functions"),
        (lambda: kg.compile(_F, custom="f"), "custom: wants derivatives"),
        (lambda: kg.compile(_F, custom=kg.custom_gradient("g", "void g_pullback() {}")), "no function 'g'"),
    ],
)
def test_wrong_requests(make: object, message: str) -> None:
    with pytest.raises(kg.KernelGradError, match=message):
        make()  # type: ignore[operator]


def test_a_pullback_may_be_declared_before_its_body() -> None:
    pullback = "__device__ void f_pullback(double x, double d, double *d_x)"
    space = "namespace kernelgrad { namespace custom_derivatives { %s } }"
    source = f"""{space % (pullback + ";")}
        __device__ double f(double x) {{ return x * x; }}
        {space % (pullback + " { *d_x += 7 * d; }")}
        __global__ void k(double *y, const double *x) {{ y[0] = f(x[0]); }}"""
    d_y, d_x = np.ones(1), np.zeros(1)
    kg.gradient(kg.compile(source)["k"], "y, x")[1, 1](np.zeros(1), np.ones(1), d_y, d_x)
    assert d_x[0] == 7


_METHODS = """
struct S { float a; __device__ float f(float x) const { return a * x; }
  __device__ static float g(float x) { return x; } };
namespace ns { struct Q { __device__ float h(float x) const { return x; } }; }
__global__ void k(float *y, const float *x) { S s = {2}; ns::Q q; y[0] = s.f(x[0]) + S::g(x[0]) + q.h(x[0]); }
"""


@pytest.mark.parametrize("name", ["S::f", "f", "S::g", "ns::Q::h", "Q::h", "::S::f"])
def test_methods_are_told_from_functions(name: str) -> None:
    short = name.rpartition("::")[2]
    given = f"__device__ void {short}_pullback(float x, float d_result, float *d_x) {{ *d_x += d_result; }}"
    with pytest.raises(kg.LookupFailed, match=f"'{name}' is a method: derivatives are given of functions"):
        kg.compile(_METHODS, custom=kg.custom_gradient(name, given))
