// The names that are not reserved; everything else is in kernelgrad.h.
#pragma once

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
