// Stands in for Clad's header: what asks for a derivative (frontend/in_source.py) parses, and has no code of its own.
#pragma once

#include "ArrayRef.h"
#include "RestoreTracker.h"
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <type_traits>
#include <typeinfo>
#include <utility>

#define CUDA_HOST_DEVICE __host__ __device__

#pragma clang force_cuda_host_device begin
namespace clad {
// All of a value is zero: of what has elements, each of them.
void __kg_unsupported_zero();
template <class T> void zero_init(T &value);
template <class T> auto __kg_zero(T &value, int) -> decltype((void)value.begin(), (void)value.end()) {
  for (auto &element : value) clad::zero_init(element);
}
template <class T> void __kg_zero(T &value, long) {
  if constexpr (!__is_trivially_destructible(T)) __kg_unsupported_zero();
  unsigned char *at = (unsigned char *)&value;
  for (size_t k = 0; k < sizeof(T); ++k) at[k] = 0;
}
template <class T> void zero_init(T &value) {
  if constexpr (std::is_arithmetic<T>::value || std::is_pointer<T>::value)
    value = 0;
  else
    __kg_zero(value, 0);
}
template <class T> void zero_init(T *values, size_t count) {
  for (size_t k = 0; k < count; ++k) clad::zero_init(values[k]);
}

enum opts : unsigned { use_enzyme = 256, vector_mode = 512, enable_tbr = 1024, disable_tbr = 2048 };

// What is to be executed is known where it is declared: it is not assigned to. The value of a derivative is that of the
// function; a gradient has none.
template <class F, bool is_derivative> struct CladFunction;

template <class R, class... P> struct CladFunction<R (*)(P...), true> {
  CladFunction() = default;
  CladFunction(const CladFunction &) = default;
  CladFunction &operator=(const CladFunction &) = delete;
  template <class... A> R execute(A &&...arguments) const;
  template <class... A> R operator()(A &&...arguments) const;
  template <class... A> void execute_kernel(dim3 grid, dim3 block, A &&...arguments) const;
  void dump() const {}
};

template <class R, class... P> struct CladFunction<R (*)(P...), false> {
  CladFunction() = default;
  CladFunction(const CladFunction &) = default;
  CladFunction &operator=(const CladFunction &) = delete;
  template <class... A> void execute(A &&...arguments) const;
  template <class... A> void operator()(A &&...arguments) const;
  template <class... A> void execute_kernel(dim3 grid, dim3 block, A &&...arguments) const;
  void dump() const {}
};

template <class F> CladFunction<F, false> gradient(F function, const char *parameters = "");
template <class F> CladFunction<F, false> gradient(F function, int parameter);
template <class F> CladFunction<F, true> differentiate(F function, const char *parameter = "");
template <class F> CladFunction<F, true> differentiate(F function, int parameter);
template <unsigned options, class F> CladFunction<F, false> gradient(F function, const char *parameters = "");
template <unsigned order, class F> CladFunction<F, true> differentiate(F function, const char *parameter = "");
template <class F> CladFunction<F, false> hessian(F function, const char *parameters = "");
template <class F> CladFunction<F, false> jacobian(F function, const char *parameters = "");
template <class F> CladFunction<F, false> estimate_error(F function, const char *parameters = "");
} // namespace clad
#pragma clang force_cuda_host_device end
