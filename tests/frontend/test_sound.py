"""What does not parse does not exist, and neither does what uses it: never a kernel with statements missing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.frontend.sound import make_sound
from kernelgrad.frontend.unit import Options, Unit

_HEADER = '#include "petsc.h"\n'


def _kernel(body: str) -> str:
    return f"__global__ void k(float *y, const float *x) {{ int i = threadIdx.x; {body} }}\n"


# What is in the file, what the kernel does with it, and the text that the error points at.
REFUSED = {
    "typedef": ("typedef PetscReal real;", "real a = x[i]; y[i] = a * a;", "PetscReal"),
    "alias": ("using real = PetscReal;", "real a = x[i]; y[i] = a * a;", "PetscReal"),
    "constant": ("const float S = BASE * 2.0f;", "y[i] = S * x[i];", "BASE"),
    "constant beside another": ("const float A = 1, S = BASE, T = 2;", "y[i] = T * x[i];", "BASE"),
    "enumerator": ("enum { A = BASE, B };", "y[i] = B * x[i];", "BASE"),
    "enum's type": ("enum class E : Missing { A, B };", "y[i] = (int)E::B * x[i];", "Missing"),
    "default argument": ("__device__ float f(float a, float s = BASE) { return a * s; }", "y[i] = f(x[i]);", "BASE"),
    "static member": ("struct P { static const int q = BASE; };", "y[i] = P::q * x[i];", "BASE"),
    "parameter": ("__device__ float f(Missing m, float s) { return s; }", "y[i] = f(1, x[i]);", "Missing"),
    "result": ("__device__ Missing f(float s) { return s; }", "y[i] = f(x[i]);", "Missing"),
    "deduced result": ("__device__ auto f(float s) { return s * MISSING; }", "y[i] = f(x[i]);", "MISSING"),
    "field": ("struct P { float a; Missing b; };", "P p; p.a = x[i]; y[i] = p.a;", "Missing"),
    "size of a field": ("struct P { float a[NMAX]; float b; };", "P p; p.b = x[i]; y[i] = p.b;", "NMAX"),
    "anonymous union": (
        "struct P { union { Missing m; float a; }; float b; };",
        "P p; p.b = 1; y[i] = p.b;",
        "Missing",
    ),
    "virtual function": ("struct P { float a; virtual Missing f(); };", "P *p = (P *)y; p->a = x[i];", "Missing"),
    "module variable": ("__device__ Missing g;", "y[i] = x[i]; g = 1;", "Missing"),
    "constant memory": ("__constant__ float c[NMAX];", "y[i] = x[i] * c[i];", "NMAX"),
    "constructor": ("struct P { float a; __device__ P() { a = BASE; } };", "P p; y[i] = x[i] + p.a;", "BASE"),
    "initialiser": ("struct P { float a; __device__ P() : a(BASE) {} };", "P p; y[i] = x[i] + p.a;", "BASE"),
    "copy": (
        "struct P { float a; P() = default; __device__ P(const P &o) { a = BASE * o.a; } };",
        "P p; p.a = x[i]; P q = p; y[i] = q.a;",
        "BASE",
    ),
    "assignment": (
        "struct P { float a; __device__ P &operator=(const P &o) { a = BASE; return *this; } };",
        "P p, q; p.a = x[i]; q = p; y[i] = q.a;",
        "BASE",
    ),
    "constructor overload": ("struct P { float a, b; P(Missing m); };", "P p = {x[i]}; y[i] = p.a;", "Missing"),
    "overload": (
        "__device__ float f(double a) { return 2 * a; }\n__device__ float f(Real a) { return 3 * a; }",
        "y[i] = f(x[i]);",
        "Real",
    ),
    "method overload": (
        "struct P { float a; __device__ float f(Missing m) { return 1; } __device__ float f(double m) { return 2; } };",
        "P p; y[i] = p.f(1);",
        "Missing",
    ),
    "operator": (
        "struct V { float a; };\n__device__ V operator+(V p, Missing q) { return p; }\n"
        "__device__ V operator+(V p, double q) { p.a += q; return p; }",
        "V v; v.a = x[i]; y[i] = (v + 1).a;",
        "Missing",
    ),
    "class specialisation": (
        "template <class T> struct Tr { static const int v = 1; };\n"
        "template <> struct Tr<Real> { static const int v = 2; };",
        "y[i] = x[i] * Tr<float>::v;",
        "Real",
    ),
    "function specialisation": (
        "template <class T> __device__ T f(T x) { return x; }\n"
        "template <> __device__ float f<Real>(Real x) { return 2; }",
        "y[i] = f(x[i]);",
        "Real",
    ),
    "behind a helper": (
        "__device__ float g(Missing m) { return 1; }\n__device__ float h(float a) { return a * g(2); }",
        "y[i] = h(x[i]);",
        "Missing",
    ),
    "name of an intrinsic": ("__device__ float sinpi(int a, float b) { return BASE; }", "y[i] = sinpi(1, 2);", "BASE"),
    "template argument": (
        "template <int N> __device__ float f(float a) { return a * N; }",
        "y[i] = f<BASE>(2);",
        "BASE",
    ),
    "template parameter": (
        "template <Missing N> __device__ float f(float a) { return a; }",
        "y[i] = f<3>(2);",
        "Missing",
    ),
    "operator that built-in ones stand in for": (
        "struct F { float v; __device__ operator float() const { return v; } };\n"
        "__device__ Missing operator*(F a, F b);",
        "y[i] = F{x[i]} * F{2.f};",
        "Missing",
    ),
    "operator of a class that built-in ones stand in for": (
        "struct F { float v; __device__ operator float() const { return v; } Missing operator-() const; };",
        "F f{x[i]}; y[i] = -f;",
        "Missing",
    ),
    "index that a pointer's stands in for": (
        "struct F { float *p; __device__ operator float *() const { return p; } Missing operator[](int k); };",
        "F f{y}; y[i] = f[i];",
        "Missing",
    ),
    "operator of an enum": (
        "enum E { A = 1, B = 2 };\n__device__ Missing operator|(E a, E b);",
        "E e = A; y[i] = (e | B) * x[i];",
        "Missing",
    ),
    "operator of a class beside a free one": (
        "struct F { float v; Missing operator*(float a) const; };\n"
        "template <class T> __device__ float operator*(const T &a, float b) { return a.v; }",
        "y[i] = F{x[i]} * 2.f;",
        "Missing",
    ),
    "friend": (
        "struct F { float v; friend __device__ float f(F a, Missing m = 0) { return 2; } };\n"
        "template <class T> __device__ float f(T a) { return a.v; }",
        "y[i] = f(F{x[i]});",
        "Missing",
    ),
    "type of a field": (
        "typedef float real; struct P { typedef Missing real; real a; };",
        "P p; y[i] = p.a;",
        "Missing",
    ),
    "destructor": ("struct P { float *a; ~P() noexcept(BASE) { *a = 1; } };", "P p{y + i}; y[i] = x[i];", "BASE"),
    "substitution that fails": (
        "__device__ Missing f(float);\n"
        "template <class T> __device__ auto g(T a, int) -> decltype(f(a), a) { return 2 * a; }\n"
        "template <class T> __device__ T g(T a, long) { return a; }",
        "y[i] = g(x[i], 0);",
        "Missing",
    ),
    "detected member": (
        "struct F { __device__ float f(Missing m) { return 2; } };\n"
        "template <class T, class = void> struct has { static constexpr bool value = false; };\n"
        "template <class T> struct has<T, decltype((void)&T::f)> { static constexpr bool value = true; };",
        "y[i] = has<F>::value ? 2 * x[i] : x[i];",
        "Missing",
    ),
    "overloads that are tested for": (
        "struct F { __device__ float f(Missing m) { return 2; } };\n"
        "template <class T> struct has { template <class U> static auto g(int) -> decltype(&U::f, char());\n"
        "template <class U> static int g(...); static constexpr bool value = sizeof(g<T>(0)) == 1; };",
        "y[i] = has<F>::value ? 2 * x[i] : x[i];",
        "Missing",
    ),
    "template of a variable": (
        "#include <type_traits>\nstruct F { typedef Missing real; };\n"
        "template <class T, class = void> constexpr bool has = false;\n"
        "template <class T> constexpr bool has<T, std::void_t<typename T::real>> = true;",
        "y[i] = has<F> ? 2 * x[i] : x[i];",
        "Missing",
    ),
    "function of a macro": (
        "#define OVERLOAD(f) __device__ float f(float x, Missing m = 0) { return 2 * x; }\nOVERLOAD(f)\n"
        "__device__ float f(double x) { return x; }",
        "y[i] = f(x[i]);",
        "OVERLOAD",
    ),
    "deduction guide": (
        "template <class T> struct P { T v; __device__ P(T t) : v(t) {} };\nP(float, Missing = 0) -> P<int>;",
        "P p(x[i]); y[i] = p.v;",
        "Missing",
    ),
    "outer name": ("const float S = 2;\nstruct P { static const float S = BASE; };", "y[i] = P::S;", "BASE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_uses_it_is_refused(case: str) -> None:
    declaration, body, wrong = REFUSED[case]
    source = f"{_HEADER}{declaration}\n{_kernel(body)}"
    with pytest.raises(kg.ParseError, match=r"the header 'petsc\.h' was not found") as caught:
        kg.compile(source)["k"]
    line = source.splitlines()[caught.value.span.line - 1]
    assert line[caught.value.span.column - 1 :].startswith(wrong)


TWICE = "y[i] = 2 * x[i];"
FINE = {
    "beside an instance of a template, in a namespace": (
        "y[i] = n::twice(x[i]);",
        "namespace n { inline int name(int e) { return e; }\ninline int name(Missing e) { return A; }\n"
        "template <class T> void check(T t) { name(t); }\ninline void caller() { check(1); }\n"
        "__device__ float twice(float a) { return 2 * a; } }",
    ),
    "main": (TWICE, "int main() { PetscInitialize(); Vec v; for (int i : v) run(i); return 0; }"),
    "class": (TWICE, "class Solver { Vec v; Mat m; public: void run(Vec b) { KSPSolve(m, b, v); } };"),
    "methods that nobody calls": (
        "P p; p.a = x[i]; y[i] = p.get();",
        "struct P { float a; void f(Vec v) { v.f(); } void g() { VecF(a); }\n"
        "__device__ float get() { return 2 * a; } };",
    ),
    "constructor of the host": (
        "P p; p.a = x[i]; y[i] = 2 * p.a;",
        "struct P { float a; __device__ P() : a(0) {} P(const Config &c) : a(c.get()) {} };",
    ),
    "its own names": ("float a = x[i], f = 2; y[i] = f * a;", "Missing a; Other f(Missing b) { return b; }"),
    "default of a macro": ("y[i] = N * x[i];", "#ifndef N\n#define N 2\n#endif"),
    "condition elsewhere": (TWICE, "#ifdef HAVE_MPI\n#include <mpi2.h>\nvoid f() { MPI_Init(); }\n#endif"),
    "instantiation": (
        "y[i] = f(x[i]);",
        "template <class T> __device__ T f(T x) { return 2 * x; }\ntemplate Missing f<Missing>(Missing);",
    ),
    "instance that the host asks for": (
        "y[i] = f(x[i]);",
        "template <class T> __device__ T f(T x) { return x + x; }\nstruct Q {};\nvoid host() { Q q; f(q); }",
    ),
    "another number of arguments": (
        "y[i] = f(x[i]);",
        "__device__ float f(float a) { return 2 * a; }\nfloat f(Vec a, Vec b, int c) { return 3; }",
    ),
    "templates with other names in their heads": (
        "y[i] = f(x[i], 0);",
        "struct Q { Missing size(); Vec data; int g(Mat m); };\n"
        "template <class T> __device__ auto f(T a, int) -> decltype(a + a) { return 2 * a; }\n"
        "template <class T> __device__ T f(T a, long size) { return a; }",
    ),
    "operators of others": (
        "P p{x[i]}; y[i] = p(2) + p.a;",
        "struct P { float a; __device__ float operator()(int k) { return a; } };\n"
        "struct Q { Vec operator()(Mat m, Mat n); };\nVec operator*(Vec a, Mat b);",
    ),
    "attributes": (TWICE, "[[nodiscard]] Missing f();\nextern \"C\" Vec g();"),
    "namespaces": (TWICE, "namespace a { Vec f(Mat m); class Q : public Missing {}; namespace b { Vec g; } }"),
    "unknown macros": (TWICE, "DECLARE_STUFF(a, b);"),
    "an unknown macro before an overload": (
        "y[i] = f(x[i]);",
        "__device__ float f(double a) { return 1; }\nREGISTER(g)\n__device__ float f(float a) { return 2 * a; }",
    ),
    "unknown macros before an overload": (
        "y[i] = f(x[i]);",
        "__device__ float f(double a) { return 1; }\nA(b) B(c)\n__device__ float f(float a) { return 2 * a; }",
    ),
    "an unknown macro before a specialisation": (
        "y[i] = f(x[i]);",
        "template <class T> __device__ T f(T a) { return a; }\n"
        "REGISTER(f, 1)\ntemplate <> __device__ float f(float a) { return 2 * a; }",
    ),
    "an unknown macro before a kernel": (TWICE, "REGISTER(g)"),
    "comments and texts": (
        TWICE,
        "// don't \"\nMissing f(); /* } */ const char *s = \"}\"; Missing g() { return '}'; }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FINE)
def test_what_does_not_use_it_goes_on(case: str) -> None:
    body, declaration = FINE[case]
    module = kg.compile(f"{_HEADER}{declaration}\n{_kernel(body)}")
    with pytest.warns(UserWarning, match=r"the header 'petsc\.h' was not found"):
        kernel = module["k"]
    y = np.zeros(4, np.float32)
    kernel[1, 4](y, np.arange(4, dtype=np.float32))
    assert y.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "source",
    [
        "#ifdef SQUARE\n#define F(x) (x) * (x)\n#else\n#define F(x) (x)\n#endif\n" + _kernel("y[i] = F(x[i]);"),
        _kernel("\n#if SQUARE\n y[i] = x[i] * x[i];\n#else\n y[i] = x[i];\n#endif\n"),
        "#ifdef SQUARE\ntypedef double real;\n#else\ntypedef float real;\n#endif\n"
        + _kernel("real a = x[i]; y[i] = a;"),
        "#if !defined(SQUARE)\n" + _kernel("y[i] = x[i];") + "#endif\n",
        "#ifndef SQUARE\n#define SQUARE\ntypedef float real;\n#else\ntypedef double real;\n#endif\n"
        + _kernel("real a = x[i]; y[i] = a;"),
    ],
)
def test_conditions_that_a_missing_header_may_decide(source: str) -> None:
    with pytest.raises(kg.ParseError, match=r"(?s)'SQUARE'.*'petsc\.h' was not found"):
        kg.compile(_HEADER + source)["k"]
    with pytest.warns(UserWarning):
        assert repr(kg.compile(_HEADER + source.replace("!", ""), defines={"SQUARE": 1})["k"])
    assert repr(kg.compile(source)["k"])  # without the header, nobody is asked


@pytest.mark.parametrize(
    ("config", "other"),
    [
        ("#ifdef SQUARE\n#define F(x) (x) * (x)\n#else\n#define F(x) (x)\n#endif\n", ""),
        ('#ifdef SQUARE\n#include "none.h"\n#else\n#include "other.h"\n#endif\n', "#define F(x) (x)\n"),
        ('#ifdef SQUARE\n#else\n#include "other.h"\n#endif\n', "__device__ float F(float x) { return x; }\n"),
    ],
)
def test_conditions_in_headers_that_hold_macros_only(tmp_path, config: str, other: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "config.h").write_text(f"#ifndef CONFIG_H\n#define CONFIG_H\n{config}#endif\n")
    (tmp_path / "other.h").write_text(other)
    source = '#include "config.h"\n' + _kernel("y[i] = F(x[i]);")
    with pytest.raises(kg.ParseError, match=r"(?s)'SQUARE'.*'petsc\.h' was not found"):
        kg.compile(_HEADER + source, include_dirs=[tmp_path])["k"]
    assert repr(kg.compile(source, include_dirs=[tmp_path])["k"])


PIECES = {
    "body": ('__device__ float f(float v) {\n#include "piece.inc"\n return v; }', "y[i] = f(x[i]);"),
    "fields": ('struct P { float a;\n#include "piece.inc"\n};', "P p; p.a = x[i]; y[i] = p.a;"),
    "table": ('__constant__ float c[] = {1,\n#include "piece.inc"\n};', "y[i] = c[0] * x[i];"),
    "enumerators": ('enum { A,\n#include "piece.inc"\nB };', "y[i] = B * x[i];"),
    "statements": ("", 'y[i] = x[i];\n#include "piece.inc"\n'),
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("case", PIECES)
def test_pieces_that_are_not_found(tmp_path, case: str, nested: bool) -> None:  # type: ignore[no-untyped-def]
    if nested:
        (tmp_path / "piece.inc").write_text('#include "inner.inc"\n')
    declaration, body = PIECES[case]
    module = kg.compile(
        f"{declaration}\n{_kernel(body)}{_kernel('y[i] = 1;').replace(' k(', ' j(')}", include_dirs=[tmp_path]
    )
    with pytest.raises(kg.ParseError, match=r"'(inner|piece)\.inc' file not found"):
        module["k"]
    with pytest.warns(UserWarning, match="was not found"):
        assert repr(module["j"])


def test_a_kernel_that_an_open_brace_swallows() -> None:
    source = "__device__ float f(float x) { if (x > 0) { return x;\nreturn -x; }\n" + _kernel("y[i] = f(x[i]);")
    module = kg.compile(source)
    with pytest.raises(kg.LookupFailed, match=r"no function 'k'(.|\n)*kernel\.cu:3:\d+: error: function definition"):
        module["k"]
    with pytest.raises(kg.LookupFailed) as caught:
        module["other"]
    assert "error:" not in str(caught.value)


STRAY = {
    "a kernel without its tail": "__global__ void k(float *y) { if (y[0] > 0) y[0] = 1; y[1] = 2; }\ny[0] += 3; }",
    "nothing behind": "__global__ void k(float *y) { if (y[0] > 0) y[0] = 1; y[1] = 2; }\n}",
    "closed a namespace": "namespace a { __device__ void f(float &v) { if (v > 0) v = 1; v = 2; } }\n"
    "__global__ void k(float *y) { a::f(y[0]); }\n}",
    "method": "struct P { float v; __device__ void f() { if (v > 0) v = 1; v = 2; } };\n};\n"
    "__global__ void k(float *y) { P p{1}; p.f(); y[0] = p.v; }",
    "of a macro": "#define END }\n__global__ void k(float *y) { if (y[0] > 0) y[0] = 1; y[1] = 2; }\ny[2] = 3; END",
    "beside branches of the preprocessor": "#ifdef A\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n"
    "__global__ void k(float *y) { if (y[0] > 0) y[0] = 1; y[1] = 2; }\n}",
}  # fmt: skip


@pytest.mark.parametrize("case", STRAY)
def test_a_brace_that_closes_nothing(case: str) -> None:
    """Something before it ended too early: nobody knows what."""
    module = kg.compile(STRAY[case])
    with pytest.raises(kg.ParseError, match="extraneous closing brace"):
        module["k"]


def test_braces_that_clang_lost_count_of() -> None:
    """After an error in brackets of another kind."""
    host = 'REGISTER(a) .Attr("x") .SetFn([](Ctx *c) { return OK ); });\n'
    unit = Unit("k.cu", host, Options())
    assert any("extraneous closing brace" in error.spelling for error in unit.errors)
    y = np.zeros(4, np.float32)
    kg.compile(host + _kernel("y[i] = 2;"))["k"][1, 4](y, y.copy())
    assert y.tolist() == [2, 2, 2, 2]


def test_a_redefined_enumerator() -> None:
    with pytest.raises(kg.ParseError, match="redefinition of enumerator 'A'"):
        kg.compile("enum { A = 2 };\nenum { A = 3 };\n" + _kernel("y[i] = A * x[i];"))["k"]


def test_errors_that_no_header_can_mend_do_not_name_one() -> None:
    with pytest.raises(kg.ParseError) as caught:
        kg.compile(_HEADER + _kernel("y[i] = x[i] +;"))["k"]
    assert "petsc.h" not in str(caught.value)


def test_endless_templates() -> None:
    source = "template <int N> struct R { static const int v = R<N - 1>::v; };\n" + _kernel("y[i] = x[i] * R<3>::v;")
    with pytest.raises(kg.ParseError, match="recursive template instantiation"):
        kg.compile(source)["k"]


def test_a_template_names_the_header() -> None:
    source = _HEADER + "template <class T> __global__ void k(T *y, Missing m) { y[0] = m; }"
    with pytest.raises(
        kg.KernelGradError, match=r"(?s)unknown type name 'Missing'.*'petsc\.h' was not found"
    ) as caught:
        kg.compile(source)["k<float>"]
    assert "__kernelgrad" not in str(caught.value)
    source = _HEADER + "template <class T> __global__ void k(T *y) { y[0] = 1; }"
    with pytest.raises(kg.KernelGradError, match=r"(?s)undeclared identifier 'PetscReal'.*'petsc\.h'") as caught:
        kg.compile(source)["k<PetscReal>"]
    assert "__kernelgrad" not in str(caught.value)


def test_user_headers(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "own.h").write_text(
        "Missing host(Vec v);\n__device__ inline float f(float a) { return 2 * a; }\ntypedef Missing real;\n"
    )
    source = (
        '#include "own.h"\n' + _kernel("y[i] = f(x[i]);") + _kernel("real a = x[i]; y[i] = a;").replace(" k(", " j(")
    )
    module = kg.compile(source, include_dirs=[tmp_path])
    y = np.zeros(2, np.float32)
    module["k"][1, 2](y, np.arange(2, dtype=np.float32))
    assert y.tolist() == [0, 2]
    with pytest.raises(kg.ParseError, match=r"own\.h:3:9: error: unknown type name 'Missing'"):
        module["j"]


def test_what_is_left_parses_and_keeps_its_places() -> None:
    source = (
        _HEADER
        + "Missing f();\nstruct P { Missing m; };\nvoid g() {\n#define N 3\n f(); P p; }\n"
        + _kernel("y[i] = N;")
    )
    unit = Unit("k.cu", source, Options())
    sound = make_sound(unit.parse, unit.tree, unit.name, unit.text)
    assert sound.hopeless is None and not list(sound.tree.diagnostics)
    left = sound.texts["k.cu"].decode()
    assert [len(line) for line in left.splitlines()] == [len(line) for line in source.splitlines()]
    assert "#define N 3" in left and "Missing" not in left and _kernel("y[i] = N;") in left


def test_a_clean_text_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(kg.compile(_kernel(TWICE))["k"])


@pytest.mark.parametrize(("header", "kind"), [("mpi.h", "calls of MPI"), ("future", "threads of the host")])
def test_headers_of_what_cannot_be_run_are_not_all_that_is_missing(header: str, kind: str) -> None:
    text = f"#include <{header}>\nvoid run(double *x) {{\n    Job job(x);\n}}"
    with pytest.raises(kg.ParseError, match=rf"(?s):3:.*'{header}' was not found: .*{kind} cannot be run here"):
        kg.compile(text)["run"]
