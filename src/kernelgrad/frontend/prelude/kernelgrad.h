// What every translation unit sees: the CUDA C++ that nvcc provides without any #include.
// Functions without a body are intrinsics; their meaning is in frontend/intrinsics.py.
#pragma once

#include "kernelgrad/attributes.h"
#include "kernelgrad/types.h"

// What stands in this region may be called from host and device code. What has no meaning on the device is refused
// when the call is lowered, where the error can say more than "no matching function".
#pragma clang force_cuda_host_device begin
#include "kernelgrad/traits.h"
#include "kernelgrad/limits.h"
#include "kernelgrad/vectors.h"
#include "kernelgrad/variables.h"
#include "kernelgrad/integer.h"
#include "kernelgrad/simd.h"
#include "kernelgrad/convert.h"
#include "kernelgrad/math.h"
#include "kernelgrad/math_fast.h"
#include "kernelgrad/utility.h"
#include "kernelgrad/memory.h"
#include "kernelgrad/atomics.h"
#include "kernelgrad/sync.h"
#include "kernelgrad/warp.h"
#include "kernelgrad/half.h"
#include "kernelgrad/bfloat16.h"
#include "kernelgrad/stop_gradient.h"
#include "kernelgrad/libc.h"
#include "kernelgrad/texture.h"
#pragma clang force_cuda_host_device end

#include "kernelgrad/libc_host.h"
#include "kernelgrad/runtime.h"
