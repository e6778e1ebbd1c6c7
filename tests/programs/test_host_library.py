"""The C++ library in host functions: containers, strings, smart pointers, streams, files, static storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgrad as kg
from kernelgrad.errors import UnsupportedError

HEAD = r"""
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>
struct Obj {
  double v;
  Obj(double v) : v(v) { printf("+%g ", v); }
  ~Obj() { printf("-%g ", v); }
};
struct Named { std::string n; std::vector<double> v; int k = 3; };
struct Told {
  int k;
  Told(int k) : k(k) { printf("+%d ", k); }
  Told(const Told &o) : k(o.k + 10) { printf("c%d ", k); }
  ~Told() { printf("-%d ", k); }
};
struct Point { int x, y; Point(int x, int y = 3) : x(x), y(y) {} };
struct Plan { Named named[2]; std::pair<std::string, int> pair; Point point; std::vector<Point> points; };
struct Gone { void operator()(double *p) const { printf("gone "); cudaFree(p); } };
"""

CASES = {
    "vectors of vectors": (
        """std::vector<std::vector<double>> v(2, std::vector<double>(3, 1.5)); v[1].push_back(4); v.push_back({7, 8});
           for (auto &row : v) { for (double x : row) printf("%g ", x); printf("| "); }
           for (auto row : v) row.clear();
           v[0].insert(v[0].begin() + 1, 9); v[0].erase(v[0].begin());
           printf("%d %g %d", (int)v[2].size(), v[0][0], v[0] == v[1]);""",
        "1.5 1.5 1.5 | 1.5 1.5 1.5 4 | 7 8 | 2 9 0",
    ),
    "owners": (
        """auto p = std::make_unique<Obj>(3); std::unique_ptr<Obj> q(new Obj(4)); p = std::move(q);
           std::shared_ptr<Obj> s; { auto t = std::make_shared<Obj>(5.0); s = t; printf("%ld ", s.use_count()); }
           double *d; cudaMalloc(&d, 8); std::unique_ptr<double, Gone> own(d);
           auto raw = std::make_unique<double[]>(3);
           printf("%g %ld %d %g ", p->v, s.use_count(), (bool)q, raw[2]);""",
        "+3 +4 -3 +5 2 4 1 0 0 gone -5 -4",
    ),
    "members": (
        """Named a; a.n = "abc"; a.v = {1, 2, 3}; Named b = a; b.n += "def"; b.v[0] = 9; a = b; b.v.clear();
           printf("%s %g %d %d", a.n.c_str(), a.v[0], (int)a.v.size(), a.k);""",
        "abcdef 9 3 3",
    ),
    "objects in vectors": (
        "std::vector<Obj> o; o.emplace_back(1.0); o.push_back(Obj(2)); o.pop_back(); o.emplace_back(7.0);",
        "+1 +2 -2 -2 +7 -1 -7",
    ),
    "strings": (
        """std::string line = "x=" + std::to_string(42) + ';'; std::vector<std::string> words = {"one", "two"};
           std::cout << line << line.size() << line.substr(1, 3) << (line == "x=42;") << line.find("42") << '\\n';
           for (const auto &w : words) std::cout << w << ' ';
           std::cout << std::stoi("12") + std::stod("0.5") << (words[0] < words[1]);""",
        "x=42;5=4212\none two 12.51",
    ),
    "arrays": (
        """std::array<double, 3> a = {1, 2, 3}, b = a; b[0] = 5; double sum = 0; for (auto x : a) sum += x;
           std::swap(a, b); printf("%g %g %d", sum, a[0], (int)b.size());""",
        "6 5 3",
    ),
    "files": (
        """{ std::ofstream out(path); out << "3 4.5 word\\n" << std::setw(6) << 12 << "|" << std::fixed
                 << std::setprecision(3) << 2.0 << std::endl << "last line\\n"; }
           std::ifstream in(path); int k; double x; std::string w, line;
           in >> k >> x >> w; std::getline(in, line); std::getline(in, line);
           printf("%d %g %s [%s] ", k, x, w.c_str(), line.c_str());
           while (std::getline(in, line)) printf("<%s>", line.c_str());
           FILE *f = fopen(path, "r"); float y; fscanf(f, "%d %f", &k, &y); printf("%d %g", k, y); fclose(f);""",
        "3 4.5 word [    12|2.000] <last line>3 4.5",
    ),
    "text": (
        """std::ostringstream os; os << "a" << 1 << 'c'; std::istringstream is("7 8.5"); int p; double q; is >> p >> q;
           char buf[40] = "a,b;c"; for (char *t = strtok(buf, ",;"); t; t = strtok(nullptr, ",;")) printf("%s.", t);
           int i; float fl; char word[10]; int got = sscanf("12 abc 1.5", "%d %s %f", &i, word, &fl);
           printf("%s %d %g %d %d %s %g", os.str().c_str(), p, q, got, i, word, fl);""",
        "a.b.c.a1c 7 8.5 3 12 abc 1.5",
    ),
    "random numbers, as the usual library has them": (
        """std::mt19937 g(123); std::uniform_real_distribution<float> f(-1, 2);
           std::uniform_real_distribution<double> d; std::uniform_int_distribution<int> i(0, 9);
           std::normal_distribution<double> n(1, 2);
           std::normal_distribution<float> nf; std::default_random_engine e(7);
           float a = f(g); double b = d(g); int c = i(g); double x = n(g); float y = nf(g);
           printf("%.7g %.15g %d %.12g %.7g\\n", a, b, c, x, y);
           a = f(e); b = d(e); c = i(e);
           printf("%.7g %.15g %d", a, b, c);""",
        "1.089407 0.286139338908939 4 3.22174298268 -0.07334245\n-0.9998357 0.289237255463022 2",
    ),
    "arrays of any length": (
        """int n = strlen(path) > 3 ? 4 : 2; double sum = 0;
           for (int k = 1; k < n; k++) { double a[k + 1], b[n][2];
             for (int i = 0; i <= k; i++) { a[i] = i; b[i][1] = k; }
             sum += a[k] * b[k][1]; if (k == 2) continue; sum += 0.5; }
           printf("%g", sum);""",
        "15",
    ),
    "lists of objects copy them": (
        """Told a(1); std::vector<Told> v{a}; Told b[2] = {a, Told(2)}; printf("| ");
           auto s = std::make_shared<double>(2.5); std::vector<std::shared_ptr<double>> all{s, s}; s.reset();
           Named n{"n", {1, 2}}; std::array<Named, 2> two{n, {"m", {3}, 4}}; Named moved{std::move(n)};
           two[0].v[0] = 9; printf("%g %ld %d%g%g%d ", *all[1], all[0].use_count(), (int)n.v.size(), moved.v[0],
                                   two[0].v[0], two[1].k);""",
        "+1 c11 c21 -11 c11 +2 | 2.5 2 0194 -2 -11 -21 -1",
    ),
    "lists in lists": (
        """Named n{"n", {1, 2}}; Plan p{{n, {"m", {3}}}, {"p", 7}, {1, 2}, {{4, 5}, Point(6)}};
           p.named[0].v[1] = 8; std::vector<std::vector<double>> rows = {{1, 2}, {}, {3}};
           printf("%g %s%d %d %s%d %d%d%d %g%d", n.v[1], p.named[1].n.c_str(), p.named[1].k, (int)p.named[1].v[0],
                  p.pair.first.c_str(), p.pair.second, p.point.y, p.points[0].x, p.points[1].y, rows[2][0],
                  (int)rows[1].size());
           struct Coded { char code[8]; int k; }; Coded c[] = {{"ab", 1}, {"cd"}}; std::array<std::string, 2> s{"ef"};
           std::vector<std::string> one = {"gh"}; printf(" %s%s%s", c[1].code, s[0].c_str(), one[0].c_str());""",
        "2 m3 3 p7 243 30 cdefgh",
    ),
    "objects in lists from what is no list": (
        """struct V { double x, y; V(double x) : x(x), y(-1) {} V(double x, double y) : x(x), y(y) {} };
           struct W { V a; double z; V c[2]; }; V b[3] = {2, {3, 4}, V(5)}; W w{1, 2, {3, 4}};
           std::vector<V> v = {1, 2.5, {3, 4}}; std::array<V, 2> a = {7.0, 8.0};
           printf("%g %g %g %g %g %g ", b[0].y, b[1].x, b[2].x, w.z, w.c[0].y, w.c[1].x);
           printf("%g %g %g %g %g ", v[0].y, v[1].x, v[2].y, a[0].y, a[1].x);
           struct O { int w; O(int) : w(1) {} O(double) : w(2) {} O(bool) : w(3) {} O(double, double) : w(4) {}
                      O(float, int) : w(5) {} O(const std::string &) : w(6) {} O(const char *) : w(7) {} };
           for (O o : {O(1), O(true)}) printf("%d", o.w);
           std::vector<O> o{1, 2.5, true, 'a', {2.5f}, {2.0, 3.0}, {2.0f, 3}, std::string("s"), "t"};
           for (auto &k : o) printf("%d", k.w);""",
        "-1 3 5 2 -1 4 -1 2.5 4 -1 8 13123124567",
    ),
    "what a vector's move takes": (
        """std::vector<Told> x, y; x.emplace_back(1); y.emplace_back(2); x = std::move(y);
           printf("| %d %d ", (int)x.size(), (int)y.size());""",
        "+1 +2 -1 | 1 0 -2",
    ),
    "what a loop goes through lasts as long": (
        """Told a(1); std::vector<int> u{1, 2}, w{3};
           for (const Told &t : {a, Told(3)}) printf("%d ", t.k);
           for (const auto &v : {u, w}) for (int k : v) printf("%d ", k);""",
        "+1 c11 +3 11 3 -3 -11 1 2 3 -1",
    ),
    "a vector's own elements, put into it": (
        """std::vector<std::string> v{"a"}; for (int k = 0; k < 9; k++) v.push_back(v[0] + v.back());
           for (int k = 0; k < 9; k++) { v.push_back(v[1]); v.emplace_back(v.front()); }
           v.insert(v.begin() + 1, v[3]); std::vector<int> w(2, 5); w.resize(20, w[1]); w.assign(30, w[19]);
           printf("%s %s %s %d", v[1].c_str(), v[11].c_str(), v.back().c_str(), w[29]);""",
        "aaaa aa a 5",
    ),
    "parts of vectors": (
        """std::vector<std::string> v(2, "a"); v.insert(v.end(), 2, "b"); std::vector<std::string> w = {"c", "d"};
           v.insert(v.begin() + 1, w.begin(), w.end()); v.insert(v.begin(), {"e", "f"});
           v.erase(v.begin(), v.begin() + 1);
           v.erase(std::remove_if(v.begin(), v.end(), [](const std::string &s) { return s == "b"; }), v.end());
           for (const auto &s : v) printf("%s", s.c_str());
           std::vector<int> k; k.assign({1, 2}); k.insert(k.begin(), 3, k[1]); int p, q;
           std::tie(p, q) = std::make_pair(k[0], (int)k.size()); printf(" %d %d", p, q);""",
        "facda 2 5",
    ),
    "realloc": (
        'float *r = (float *)malloc(8); r[1] = 2; r = (float *)realloc(r, 16); printf("%g", r[1] + r[3]); free(r);',
        "2",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_library(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body, told = CASES[case]
    source = HEAD + "void run(const char *path) {\n" + body + "\n}\n"
    source += f'int main() {{ cudaDeviceSynchronize(); run("{tmp_path}/file"); return 0; }}'
    module = kg.compile(source)
    module["main"](device="cpu")
    assert capsys.readouterr().out.strip() == told
    assert [a for a in module["main"].state.memory(None) if a.kind != "static"] == []


def test_static_storage_that_code_starts() -> None:
    source = """
    #include <vector>
    #include <string>
    int base = 4;
    int derived = base * 3 + 1;
    static const char *names[] = {"zero", "one"};
    std::vector<int> list;
    std::string title = std::string("ti") + names[1];
    template <class T> T next(T by) { static T own = by * derived; own += by; return own; }
    int counted(int n) { static std::vector<int> seen(n); seen.push_back(n); return seen.size(); }
    int run(int n) {
      cudaDeviceSynchronize();
      list.push_back(n);
      return 100000 * counted(n) + 10000 * list.size() + 1000 * title.size() + next(1) + (int)next(0.5);
    }"""
    run: Any = kg.compile(source)["run"]
    assert run(2, device="cpu") == 300000 + 10000 + 5000 + 14 + 7
    assert run(3, device="cpu") == 400000 + 20000 + 5000 + 15 + 7


def test_a_variable_of_another_file_is_refused() -> None:
    source = "extern int elsewhere;\nint run() { cudaDeviceSynchronize();\nreturn elsewhere; }"
    with pytest.raises(kg.UnsupportedError, match="defined in another file") as caught:
        kg.compile(source)["run"]
    assert caught.value.span.line == 3


def test_a_program_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "step.h").write_text("#pragma once\nvoid step(double *x, int n);\nextern int steps;\n")
    kernel = (
        '#include "step.h"\nint steps = 3;\n__global__ void twice(double *x) { x[threadIdx.x] *= x[threadIdx.x]; }\n'
    )
    (tmp_path / "step.cu").write_text(kernel + "void step(double *x, int n) { twice<<<1, n>>>(x); }\n")
    (tmp_path / "run.cpp").write_text(
        '#include "step.h"\nvoid run(double *x, int n) { for (int k = 0; k < steps; k++) step(x, n); }\n'
        "int wrong(int n) {\n  return missing(n);\n}\n"
    )
    module = kg.load([tmp_path / "run.cpp", tmp_path / "step.cu"])
    x, d_x = np.array([1.1, 0.9]), np.ones(2)
    start = x.copy()
    kg.gradient(module["run"]).execute(x, 2, d_x, device="cpu")
    assert np.allclose(x, start**8) and np.allclose(d_x, 8 * start**7)
    with pytest.raises(kg.KernelGradError, match=r"run\.cpp:4:.*missing"):
        module["wrong"]


@pytest.mark.parametrize("values", ["{1.0, {2.0, 3.0}}", "{{1.0}, {2.0, 3.0}}"])
def test_variables_whose_lists_call_constructors_are_refused(values: str) -> None:
    text = """struct V { double x, y; __device__ constexpr V(double x, double y = -1) : x(y), y(x) {} };
    __constant__ V c[2] = VALUES;
    __global__ void k(double *o) { o[0] = c[1].x; }""".replace("VALUES", values)
    with pytest.raises(UnsupportedError, match=r"kernel.cu:2:\d+: error: the .* of a module-level variable"):
        kg.compile(text)["k"]
