// The CUDA samples' error checks.
#pragma once

template <class T> void check(T result, const char *function, const char *file, int line);
#define checkCudaErrors(value) check((value), #value, __FILE__, __LINE__)
#define getLastCudaError(message) ((void)(message), cudaGetLastError())
int findCudaDevice(int count, const char **arguments);
int gpuGetMaxGflopsDeviceId();
