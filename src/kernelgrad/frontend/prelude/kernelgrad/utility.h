// The parts of <utility>, <algorithm>, <functional>, <array> and <tuple> that device code uses.
#pragma once

namespace std {

template <class T> constexpr T &&forward(remove_reference_t<T> &x) noexcept { return static_cast<T &&>(x); }
template <class T> constexpr T &&forward(remove_reference_t<T> &&x) noexcept { return static_cast<T &&>(x); }
template <class T> constexpr remove_reference_t<T> &&move(T &&x) noexcept {
  return static_cast<remove_reference_t<T> &&>(x);
}
template <class T> constexpr T *addressof(T &x) noexcept { return __builtin_addressof(x); }
template <class T> constexpr const T &as_const(T &x) noexcept { return x; }

template <class T> constexpr void swap(T &a, T &b) {
  T old = static_cast<T &&>(a);
  a = static_cast<T &&>(b);
  b = static_cast<T &&>(old);
}
template <class T, size_t n> constexpr void swap(T (&a)[n], T (&b)[n]) {
  for (size_t k = 0; k < n; ++k) swap(a[k], b[k]);
}
template <class T, size_t n> constexpr T *begin(T (&a)[n]) { return a; }
template <class T, size_t n> constexpr T *end(T (&a)[n]) { return a + n; }
template <class T, size_t n> constexpr T *data(T (&a)[n]) { return a; }
template <class T, size_t n> constexpr size_t size(const T (&)[n]) { return n; }
template <class C> constexpr auto begin(C &c) -> decltype(c.begin()) { return c.begin(); }
template <class C> constexpr auto end(C &c) -> decltype(c.end()) { return c.end(); }
template <class C> constexpr auto data(C &c) -> decltype(c.data()) { return c.data(); }
template <class C> constexpr auto size(const C &c) -> decltype(c.size()) { return c.size(); }
template <class T, class U = T> constexpr T exchange(T &x, U &&next) {
  T old = static_cast<T &&>(x);
  x = static_cast<U &&>(next);
  return old;
}

// By value, where the standard has references: nothing a kernel can see differs, and no address is taken.
template <class T> constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T> constexpr T max(T a, T b) { return a < b ? b : a; }
template <class T, class Less> constexpr T min(T a, T b, Less less) { return less(b, a) ? b : a; }
template <class T, class Less> constexpr T max(T a, T b, Less less) { return less(a, b) ? b : a; }
template <class T> constexpr T clamp(T x, T low, T high) { return x < low ? low : high < x ? high : x; }

template <class A, class B> struct pair {
  typedef A first_type;
  typedef B second_type;
  A first;
  B second;
  constexpr pair() : first(), second() {}
  constexpr pair(const A &a, const B &b) : first(a), second(b) {}
  template <class C, class D> constexpr pair(const pair<C, D> &p) : first(p.first), second(p.second) {}
};
template <class A, class B> constexpr pair<decay_t<A>, decay_t<B>> make_pair(A &&a, B &&b) {
  return pair<decay_t<A>, decay_t<B>>(a, b);
}
template <class A, class B> constexpr bool operator==(const pair<A, B> &p, const pair<A, B> &q) {
  return p.first == q.first && p.second == q.second;
}
template <class A, class B> constexpr bool operator!=(const pair<A, B> &p, const pair<A, B> &q) { return !(p == q); }
template <class A, class B> constexpr bool operator<(const pair<A, B> &p, const pair<A, B> &q) {
  return p.first < q.first || (!(q.first < p.first) && p.second < q.second);
}

template <class T, T... ks> struct integer_sequence {
  typedef T value_type;
  static constexpr size_t size() noexcept { return sizeof...(ks); }
};
template <size_t... ks> using index_sequence = integer_sequence<size_t, ks...>;
template <class T, T n> using make_integer_sequence = __make_integer_seq<integer_sequence, T, n>;
template <size_t n> using make_index_sequence = make_integer_sequence<size_t, n>;
template <class... T> using index_sequence_for = make_index_sequence<sizeof...(T)>;

#define KG_OPERATION(name, expression)                                                                                 \
  template <class T = void> struct name {                                                                              \
    constexpr auto operator()(const T &a, const T &b) const { return expression; }                                     \
  };                                                                                                                   \
  template <> struct name<void> {                                                                                      \
    template <class A, class B> constexpr auto operator()(const A &a, const B &b) const { return expression; }         \
  };
KG_OPERATION(plus, a + b)
KG_OPERATION(minus, a - b)
KG_OPERATION(multiplies, a *b)
KG_OPERATION(divides, a / b)
KG_OPERATION(modulus, a % b)
KG_OPERATION(less, a < b)
KG_OPERATION(less_equal, a <= b)
KG_OPERATION(greater, a > b)
KG_OPERATION(greater_equal, a >= b)
KG_OPERATION(equal_to, a == b)
KG_OPERATION(not_equal_to, a != b)
KG_OPERATION(logical_and, a &&b)
KG_OPERATION(logical_or, a || b)
KG_OPERATION(bit_and, a &b)
KG_OPERATION(bit_or, a | b)
KG_OPERATION(bit_xor, a ^ b)
#undef KG_OPERATION

template <class T> struct __kg_reverse_iterator {
  T *_base;  // behind what it leads to
  constexpr __kg_reverse_iterator(T *base = nullptr) : _base(base) {}
  constexpr T *base() const { return _base; }
  constexpr T &operator*() const { return _base[-1]; }
  constexpr T *operator->() const { return _base - 1; }
  constexpr T &operator[](long k) const { return _base[-1 - k]; }
  constexpr __kg_reverse_iterator operator+(long k) const { return __kg_reverse_iterator(_base - k); }
  constexpr __kg_reverse_iterator operator-(long k) const { return __kg_reverse_iterator(_base + k); }
  constexpr long operator-(const __kg_reverse_iterator &other) const { return other._base - _base; }
  constexpr __kg_reverse_iterator &operator++() {
    --_base;
    return *this;
  }
  constexpr __kg_reverse_iterator operator++(int) { return __kg_reverse_iterator(_base--); }
  constexpr __kg_reverse_iterator &operator--() {
    ++_base;
    return *this;
  }
  constexpr bool operator==(const __kg_reverse_iterator &other) const { return _base == other._base; }
  constexpr bool operator!=(const __kg_reverse_iterator &other) const { return _base != other._base; }
  constexpr bool operator<(const __kg_reverse_iterator &other) const { return other._base < _base; }
};

template <class T, size_t n> struct array {
  typedef T value_type;
  typedef size_t size_type;
  typedef T *iterator;
  typedef const T *const_iterator;
  T _data[n ? n : 1];
  constexpr T &operator[](size_t k) { return _data[k]; }
  constexpr const T &operator[](size_t k) const { return _data[k]; }
  constexpr T &at(size_t k) { return _data[k]; }
  constexpr const T &at(size_t k) const { return _data[k]; }
  constexpr T &front() { return _data[0]; }
  constexpr const T &front() const { return _data[0]; }
  constexpr T &back() { return _data[n - 1]; }
  constexpr const T &back() const { return _data[n - 1]; }
  constexpr T *data() { return _data; }
  constexpr const T *data() const { return _data; }
  constexpr T *begin() { return _data; }
  constexpr const T *begin() const { return _data; }
  constexpr T *end() { return _data + n; }
  constexpr const T *end() const { return _data + n; }
  constexpr const T *cbegin() const { return _data; }
  constexpr const T *cend() const { return _data + n; }
  constexpr __kg_reverse_iterator<T> rbegin() { return __kg_reverse_iterator<T>(end()); }
  constexpr __kg_reverse_iterator<T> rend() { return __kg_reverse_iterator<T>(begin()); }
  constexpr __kg_reverse_iterator<const T> rbegin() const { return __kg_reverse_iterator<const T>(end()); }
  constexpr __kg_reverse_iterator<const T> rend() const { return __kg_reverse_iterator<const T>(begin()); }
  constexpr size_t size() const { return n; }
  constexpr bool empty() const { return n == 0; }
  constexpr void fill(const T &value) {
    for (size_t k = 0; k < n; ++k) _data[k] = value;
  }
};

template <class T, size_t n> __host__ __device__ bool operator==(const array<T, n> &a, const array<T, n> &b) {
  for (size_t k = 0; k < n; ++k)
    if (!(a[k] == b[k])) return false;
  return true;
}
template <class T, size_t n> __host__ __device__ bool operator!=(const array<T, n> &a, const array<T, n> &b) {
  return !(a == b);
}

}  // namespace std
