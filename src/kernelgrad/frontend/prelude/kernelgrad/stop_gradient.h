// kernelgrad::stop_gradient(x): x, as a number that derivatives do not flow through.
#pragma once
#define KERNELGRAD_STOP_GRADIENT

float __kg_stop(float x);
double __kg_stop(double x);
__half __kg_stop(__half x);
__nv_bfloat16 __kg_stop(__nv_bfloat16 x);

namespace kernelgrad {
#define KG_STOP(T) inline T stop_gradient(T v) { return __kg_stop(v); }
#define KG_STOP2(T) inline T stop_gradient(T v) { v.x = __kg_stop(v.x), v.y = __kg_stop(v.y); return v; }
#define KG_STOP3(T) inline T stop_gradient(T v) { v.x = __kg_stop(v.x), v.y = __kg_stop(v.y), v.z = __kg_stop(v.z); return v; }
#define KG_STOP4(T) inline T stop_gradient(T v) { v.x = __kg_stop(v.x), v.y = __kg_stop(v.y), v.z = __kg_stop(v.z), v.w = __kg_stop(v.w); return v; }
KG_STOP(float)
KG_STOP(double)
KG_STOP(__half)
KG_STOP(__nv_bfloat16)
KG_STOP2(float2)
KG_STOP3(float3)
KG_STOP4(float4)
KG_STOP2(double2)
KG_STOP3(double3)
KG_STOP4(double4)
KG_STOP2(__half2)
KG_STOP2(__nv_bfloat162)
#undef KG_STOP
#undef KG_STOP2
#undef KG_STOP3
#undef KG_STOP4
} // namespace kernelgrad
