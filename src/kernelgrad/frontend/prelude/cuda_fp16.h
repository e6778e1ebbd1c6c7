// The names that are not reserved; everything else is in kernelgrad.h.
#pragma once

typedef __half half;
typedef __half2 half2;
