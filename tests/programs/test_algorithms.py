"""Algorithms, lists and queues of the C++ library in host functions, told as g++'s library tells them."""

from __future__ import annotations

import numpy as np
import pytest

import kernelgrad as kg
from host_functions import check, numbers
from kernelgrad.errors import ProgramError

PROGRAM = r"""
#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <list>
#include <numeric>
#include <queue>
#include <stack>
#include <utility>
#include <vector>
struct P { int k; double v; };
static void show(const std::vector<double> &v) { for (double x : v) printf("%g ", x); printf("| "); }
int main() {
  std::vector<double> v = {3, 1, 4, 1, 5, 9, 2, 6}, w(8);
  std::vector<P> p = {{2, 1}, {1, 2}, {2, 3}, {1, 4}, {0, 5}, {2, 6}, {1, 7}};
  std::stable_sort(p.begin(), p.end(), [](const P &a, const P &b) { return a.k < b.k; });
  for (auto &q : p) printf("%d%g ", q.k, q.v);
  printf("%g %g ", std::max({3.0, 7.0, 5.0}), std::min({3.0, 2.0, 5.0}));
  auto m = std::minmax_element(v.begin(), v.end());
  printf("%d %d ", (int)(m.first - v.begin()), (int)(m.second - v.begin()));
  std::vector<double> s(v.rbegin(), v.rend()); show(s);
  for (auto it = v.rbegin(); it != v.rend(); ++it) printf("%g", *it);
  std::sort(s.begin(), s.end()); printf(" %d ", std::is_sorted(s.begin(), s.end()));
  printf("%d %d %d ", (int)(std::lower_bound(s.begin(), s.end(), 4.0) - s.begin()),
         (int)(std::upper_bound(s.begin(), s.end(), 1.0) - s.begin()),
         std::binary_search(s.begin(), s.end(), 7.0));
  s.resize(std::unique(s.begin(), s.end()) - s.begin()); show(s);
  std::partial_sum(v.begin(), v.end(), w.begin()); show(w);
  std::adjacent_difference(w.begin(), w.end(), w.begin()); show(w);
  std::rotate(w.begin(), w.begin() + 3, w.end()); show(w);
  std::reverse_copy(v.begin(), v.begin() + 3, w.begin()); std::copy_n(v.begin(), 2, w.begin() + 6); show(w);
  w.resize(std::copy_if(v.begin(), v.end(), w.begin(), [](double x) { return x > 2; }) - w.begin()); show(w);
  w.erase(w.begin()); std::replace(w.begin(), w.end(), 5.0, 50.0);
  std::swap_ranges(v.begin(), v.begin() + 2, w.begin()); show(v);
  printf("%d %d %d ", (int)std::count(v.begin(), v.end(), 1.0),
         std::none_of(v.begin(), v.end(), [](double x) { return x < 0; }),
         (int)(std::max_element(v.begin(), v.end(), [](double a, double b) { return a > b; }) - v.begin()));
  printf("%g ", std::inner_product(v.begin(), v.end(), v.begin(), 0.0,
                                   [](double a, double b) { return std::max(a, b); },
                                   [](double a, double b) { return a * b; }));
  std::deque<double> d(2, 1.5); d.push_front(3); d.push_back(4); d.pop_front();
  std::list<int> l = {1, 2}; l.push_front(0);
  std::queue<int> q; q.push(1); q.push(2); q.pop(); std::stack<int> t; t.push(3); t.push(4);
  printf("%g %g %d %d %d %d", d.front(), d.back(), (int)d.size(), l.front(), q.front(), t.top());
  std::array<int, 3> a = {1, 2, 3}; for (auto it = a.rbegin(); it != a.rend(); ++it) printf(" %d", *it);
}
"""
TOLD = (
    "05 12 14 17 21 23 26 7 2 1 5 6 2 9 5 1 4 1 3 | 62951413 1 4 2 0 1 2 3 4 5 6 9 | 3 4 8 9 14 23 25 31 "
    "| 3 1 4 1 5 9 2 6 | 1 5 9 2 6 3 1 4 | 4 1 3 2 6 3 3 1 | 3 4 5 9 6 | 4 50 4 1 5 9 2 6 | 1 1 3 2500 1."
    "5 4 3 0 2 4 3 2 1"
)


def test_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    kg.compile(PROGRAM)["main"](device="cpu")
    assert capsys.readouterr().out == TOLD


def test_their_gradients() -> None:
    source = r"""
    #include <algorithm>
    #include <deque>
    #include <numeric>
    #include <vector>
    double run(double *x, int n) {
        std::vector<double> v(x, x + n), kept(n);
        std::stable_sort(v.begin(), v.end(), [](double a, double b) { return a > b; });
        std::partial_sum(v.rbegin(), v.rend(), v.begin());
        kept.resize(std::copy_if(v.begin(), v.end(), kept.begin(), [](double a) { return a > 2; }) - kept.begin());
        auto ends = std::minmax_element(x, x + n);
        std::deque<double> d(kept.begin(), kept.end());
        d.push_front(*ends.first * *ends.second);
        std::rotate(x, x + 2, x + n);
        return std::inner_product(d.begin(), d.end(), d.begin(), 0.0) * std::max({x[0], x[1], x[2]});
    }
    """
    check(source, "run", "x", (numbers(9) + np.arange(9) % 3, 9))


LISTS = r"""
#include <deque>
#include <list>
double after_the_first(double *x, int n) {
  std::deque<double> d(x, x + n);
  double &second = d[1];
  d.pop_front();
  return second * second;
}
double after_one_more(double *x, int n) {
  std::list<double> l(x, x + n);
  auto it = l.begin();
  ++it;
  l.insert(l.begin(), 5.0);
  return *it;
}
double kept(double *x, int n) {
  std::list<double> l(x, x + n);
  for (auto it = l.begin(); it != l.end();) if (*it < 2) it = l.erase(it); else ++it;
  double s = 0;
  for (double v : l) s += v * v;
  std::deque<double> a(x, x + n), b(a);
  if (a != b) s = -1;
  a.pop_front(); a.push_back(3); a.push_front(4); std::swap(a, b);
  return s + b.front() * b.back() + (a == b);
}
"""


@pytest.mark.parametrize(("name", "line"), [("after_the_first", 8), ("after_one_more", 15)])
def test_what_led_to_elements_of_lists_does_not_lead_to_others(name: str, line: int) -> None:
    with pytest.raises(
        ProgramError, match=rf"lists.cu:{line}:10: error: reads memory that was freed in line {line - 1}"
    ):
        kg.compile(LISTS, name="lists.cu")[name](numbers(5), 5)


def test_lists_and_deques() -> None:
    x, d_x = np.arange(1.0, 6.0), np.zeros(5)
    assert kg.gradient(kg.compile(LISTS)["kept"], "x").execute(x, 5, d_x) == 66
    assert d_x.tolist() == [0, 4, 6, 8, 10]
