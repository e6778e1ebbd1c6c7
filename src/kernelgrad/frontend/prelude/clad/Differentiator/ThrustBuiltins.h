// Stands in for Clad's header: thrust's vectors are made zero by kernels.
#pragma once

#include "Differentiator.h"
#include <thrust/device_vector.h>
#include <thrust/fill.h>

namespace clad {
template <class T> void zero_init(thrust::device_vector<T> &values) { thrust::fill(values.begin(), values.end(), T(0)); }
} // namespace clad
