// What host code needs of CUDA's runtime, on the emulation: device memory is the host's, every call is done at once.
// Memory comes filled with a pattern, so that what is taken to be zero is not; what is not freed is counted, and an
// allocation can be made to fail.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>

#include "cuda_emulation.h"

#define CUDART_VERSION 13000

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9, cudaErrorLaunchFailure = 719, cudaErrorUnknown = 999 };
enum cudaMemcpyKind {
    cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
using cudaStream_t = struct CUstream_st *;

namespace emulation {

inline std::map<void *, size_t> allocated;
inline long fails_at = -1; // the number of the allocation that fails, counted down
inline cudaError_t last_error = cudaSuccess;

inline cudaError_t allocate(void **memory, size_t nbytes)
{
    if (fails_at >= 0 && fails_at-- == 0) return cudaErrorMemoryAllocation;
    *memory = std::aligned_alloc(256, (nbytes + 255) / 256 * 256);
    std::memset(*memory, 0xcd, nbytes);
    allocated[*memory] = nbytes;
    return cudaSuccess;
}

inline cudaError_t release(void *memory)
{
    if (memory == nullptr) return cudaSuccess;
    if (!allocated.erase(memory)) return cudaErrorInvalidValue;
    std::free(memory);
    return cudaSuccess;
}

// What `kernel<<<...>>>` becomes: takes the arguments and runs all blocks.
template <typename... Parameters>
struct Configured {
    void (*kernel)(Parameters...);
    dim3 grid, size;

    void operator()(Parameters... arguments) const
    {
        auto run = [&] { kernel(arguments...); };
        auto call = [](void *p) { (*(decltype(run) *)p)(); };
        if (run_grid(grid, size, call, &run)) last_error = cudaErrorLaunchFailure;
    }
};

template <typename... Parameters>
Configured<Parameters...> configured(void (*kernel)(Parameters...), dim3 grid, dim3 size, size_t shared = 0,
                                     cudaStream_t = nullptr)
{
    if (shared > sizeof dynamic_shared) fail("more dynamic shared memory than there is");
    return {kernel, grid, size};
}

// The allocation that an address lies in.
inline int range(unsigned long long *start, size_t *nbytes, unsigned long long address)
{
    for (auto &[memory, size] : allocated) {
        *start = (unsigned long long)memory, *nbytes = size;
        if (address - *start < size) return 0;
    }
    return 1;
}

} // namespace emulation

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes { cudaMemoryType type; };
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *found, const void *memory)
{
    unsigned long long start;
    size_t nbytes;
    bool known = emulation::range(&start, &nbytes, (unsigned long long)memory) == 0;
    found->type = known ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
enum { cudaEnableDefault };
inline cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **function, unsigned int, int,
                                                    cudaDriverEntryPointQueryResult *)
{
    return *function = (void *)emulation::range, cudaSuccess;
}

template <typename T>
cudaError_t cudaMalloc(T **memory, size_t nbytes) { return emulation::allocate((void **)memory, nbytes); }
inline cudaError_t cudaMallocAsync(void **memory, size_t nbytes, cudaStream_t) { return emulation::allocate(memory, nbytes); }
template <typename T>
cudaError_t cudaMallocManaged(T **memory, size_t nbytes) { return emulation::allocate((void **)memory, nbytes); }
inline cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                size_t height, cudaMemcpyKind)
{
    for (size_t row = 0; row < height; ++row)
        std::memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr)
{
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t cudaMemset2D(void *to, size_t pitch, int byte, size_t width, size_t height)
{
    for (size_t row = 0; row < height; ++row) std::memset((char *)to + row * pitch, byte, width);
    return cudaSuccess;
}
template <typename T>
cudaError_t cudaMallocPitch(T **memory, size_t *pitch, size_t width, size_t height)
{
    *pitch = (width + 255) / 256 * 256; // another one than transpiled texts have
    return emulation::allocate((void **)memory, *pitch * height);
}
template <typename T>
cudaError_t cudaMallocHost(T **memory, size_t nbytes) { return *memory = (T *)std::malloc(nbytes), cudaSuccess; }
inline cudaError_t cudaFreeHost(void *memory) { return std::free(memory), cudaSuccess; }
template <typename T>
cudaError_t cudaMemcpyToSymbol(T &symbol, const void *from, size_t nbytes, size_t offset = 0, int = 0)
{
    std::memmove((char *)&symbol + offset, from, nbytes);
    return cudaSuccess;
}
template <typename T>
cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t nbytes, size_t offset = 0, int = 0)
{
    std::memmove(to, (const char *)&symbol + offset, nbytes);
    return cudaSuccess;
}
inline cudaError_t cudaFree(void *memory) { return emulation::release(memory); }
inline cudaError_t cudaFreeAsync(void *memory, cudaStream_t) { return emulation::release(memory); }
inline cudaError_t cudaMemsetAsync(void *memory, int byte, size_t nbytes, cudaStream_t = nullptr)
{
    std::memset(memory, byte, nbytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void *memory, int byte, size_t nbytes) { return cudaMemsetAsync(memory, byte, nbytes); }
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, cudaMemcpyKind, cudaStream_t = nullptr)
{
    std::memmove(to, from, nbytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, nbytes, kind);
}
struct cudaDeviceProp {
    char name[256];
    int warpSize, maxThreadsPerBlock, maxGridSize[3];
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *found, int)
{
    *found = cudaDeviceProp{"emulation", 32, 1024, {2147483647, 65535, 65535}};
    return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
typedef int cudaEvent_t;
inline cudaError_t cudaEventCreate(cudaEvent_t *event) { return *event = 1, cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int = 0) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t, cudaEvent_t) { return *time = 0, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return emulation::last_error; }
inline cudaError_t cudaGetLastError()
{
    cudaError_t found = emulation::last_error;
    emulation::last_error = cudaSuccess;
    return found;
}
inline const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }
template <typename T>
cudaError_t cudaGetSymbolAddress(void **address, const T &symbol) { return *address = (void *)&symbol, cudaSuccess; }
