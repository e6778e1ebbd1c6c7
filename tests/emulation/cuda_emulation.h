// Lets a C++ compiler build and run emitted CUDA C++ on the CPU, for tests without a GPU.
//
// The threads of a block are fibers of one OS thread: each runs until it waits at a barrier or a warp function, in an
// order that is the same every time. Blocks run one after another. Only what emitted text uses is here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <cfenv>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __managed__
#define __host__
#define __constant__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

// ---- vector types ---------------------------------------------------------------------------------------------------

#define EMULATE_VECTORS(name, type, align2, align4)                                            \
    struct name##1 { type x; };                                                                \
    struct alignas(align2) name##2 { type x, y; };                                             \
    struct name##3 { type x, y, z; };                                                          \
    struct alignas(align4) name##4 { type x, y, z, w; };                                       \
    inline name##1 make_##name##1(type x) { return {x}; }                                      \
    inline name##2 make_##name##2(type x, type y) { return {x, y}; }                           \
    inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                \
    inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

EMULATE_VECTORS(char, signed char, 2, 4)
EMULATE_VECTORS(uchar, unsigned char, 2, 4)
EMULATE_VECTORS(short, short, 4, 8)
EMULATE_VECTORS(ushort, unsigned short, 4, 8)
EMULATE_VECTORS(int, int, 8, 16)
EMULATE_VECTORS(uint, unsigned int, 8, 16)
EMULATE_VECTORS(longlong, long long, 16, 16)
EMULATE_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATE_VECTORS(float, float, 8, 16)
EMULATE_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned int x, y, z;
    dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

// ---- fibers ---------------------------------------------------------------------------------------------------------

namespace emulation {

constexpr unsigned int warp_width = 32;
constexpr size_t stack_bytes = 128 * 1024;

// What device code sees of its thread, and of the block that runs.
struct Thread {
    uint3 thread{};
    unsigned int index = 0;
    const char *stack = nullptr;
};

struct Block {
    Thread *current = nullptr;
    uint3 index{};
    dim3 size, grid;
    unsigned int count = 0;
    unsigned long long *exchange = nullptr; // one for each lane of each warp
    int *predicates = nullptr;              // one for each thread
};

extern Block block;
extern unsigned char dynamic_shared[256 * 1024];

// Of `cuda_emulation_threads.cpp`, which is compiled once for all texts.
[[noreturn]] void fail(const char *what);
bool is_live(unsigned int thread);
void block_barrier();
void warp_barrier(unsigned int mask);
unsigned int active_lanes(int line);
// Runs the blocks of a grid, in each of whose threads `run` is called. What failed, or null.
const char *run_grid(dim3 grid, dim3 size, void (*run)(void *), void *arguments);

inline unsigned int lane() { return block.current->index % warp_width; }
inline unsigned int warp() { return block.current->index / warp_width; }

// Gives `value` to the other lanes of the mask, and `read` a function from lane to value.
template <typename T, typename Read>
auto exchange(unsigned int mask, T value, Read read)
{
    static_assert(sizeof(T) <= 8, "a warp exchanges up to 8 bytes");
    std::memcpy(&block.exchange[block.current->index], &value, sizeof(T));
    warp_barrier(mask);
    auto result = read([](unsigned int other) {
        T found;
        std::memcpy(&found, &block.exchange[warp() * warp_width + other], sizeof(T));
        return found;
    });
    warp_barrier(mask);
    return result;
}

inline unsigned int live_lanes()
{
    unsigned int mask = 0;
    for (unsigned int k = 0; k < warp_width; ++k) mask |= (unsigned int)is_live(warp() * warp_width + k) << k;
    return mask;
}

template <typename... Arguments, size_t... k>
void call(void (*kernel)(Arguments...), const unsigned char *packed, const size_t *offsets, std::index_sequence<k...>)
{
    auto read = [&](auto *type, size_t at) {
        std::remove_pointer_t<decltype(type)> value;
        std::memcpy((void *)&value, packed + at, sizeof(value));
        return value;
    };
    (void)read;
    (void)offsets;
    kernel(read((std::remove_cv_t<Arguments> *)nullptr, offsets[k])...);
}

template <typename... Arguments>
const char *launch(void (*kernel)(Arguments...), const unsigned int *grid, const unsigned int *size,
                   const unsigned char *packed, const size_t *offsets)
{
    struct Call {
        void (*kernel)(Arguments...);
        const unsigned char *packed;
        const size_t *offsets;
    } arguments{kernel, packed, offsets};
    auto run = [](void *p) {
        Call &c = *(Call *)p;
        call(c.kernel, c.packed, c.offsets, std::index_sequence_for<Arguments...>{});
    };
    return run_grid(dim3(grid[0], grid[1], grid[2]), dim3(size[0], size[1], size[2]), run, &arguments);
}

template <typename To, typename From>
To bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy((void *)&to, (const void *)&from, sizeof(to));
    return to;
}

} // namespace emulation

#define threadIdx (emulation::block.current->thread)
#define blockIdx (emulation::block.index)
#define blockDim (emulation::block.size)
#define gridDim (emulation::block.grid)
constexpr int warpSize = 32;

#undef assert
#define assert(condition) ((condition) ? void() : emulation::fail("assertion failed: " #condition))
inline void __trap() { emulation::fail("trap"); }

// Memory of the thread itself: atomics on it are plain operations here, as all are.
inline unsigned int __isLocal(const void *p)
{
    const char *stack = emulation::block.current->stack;
    return (const char *)p >= stack && (const char *)p < stack + emulation::stack_bytes;
}

// ---- synchronisation ------------------------------------------------------------------------------------------------

inline void __syncthreads() { emulation::block_barrier(); }
inline void __syncwarp(unsigned int mask = 0xffffffffu) { emulation::warp_barrier(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline long long clock64()
{
    static long long now = 0;
    return ++now;
}
#define clock clock64

template <typename Combine>
int emulate_vote(int predicate, int start, Combine combine)
{
    auto &block = emulation::block;
    block.predicates[block.current->index] = predicate;
    bool took_part[1024];
    for (unsigned int k = 0; k < block.count; ++k) took_part[k] = emulation::is_live(k);
    emulation::block_barrier();
    int result = start;
    for (unsigned int k = 0; k < block.count; ++k)
        if (took_part[k]) result = combine(result, block.predicates[k] != 0);
    emulation::block_barrier();
    return result;
}

inline int __syncthreads_count(int p) { return emulate_vote(p, 0, [](int a, int b) { return a + b; }); }
inline int __syncthreads_and(int p) { return emulate_vote(p, 1, [](int a, int b) { return a & b; }); }
inline int __syncthreads_or(int p) { return emulate_vote(p, 0, [](int a, int b) { return a | b; }); }

template <typename T>
T emulate_shuffle(unsigned int mask, T value, int source, bool inside)
{
    int from = inside ? source : (int)emulation::lane();
    return emulation::exchange(mask, value, [=](auto of) { return of(from); });
}

template <typename T>
T __shfl_sync(unsigned int mask, T value, int source, int width = 32)
{
    int lane = emulation::lane(), start = lane - lane % width;
    return emulate_shuffle(mask, value, start + (source & (width - 1)), true);
}
template <typename T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int by, int width = 32)
{
    int lane = emulation::lane(), start = lane - lane % width, source = lane - (int)(by & 31);
    return emulate_shuffle(mask, value, source, source >= start);
}
template <typename T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int by, int width = 32)
{
    int lane = emulation::lane(), end = lane - lane % width + width, source = lane + (int)(by & 31);
    return emulate_shuffle(mask, value, source, source < end);
}
template <typename T>
T __shfl_xor_sync(unsigned int mask, T value, int with, int width = 32)
{
    int lane = emulation::lane(), end = lane - lane % width + width, source = lane ^ (with & 31);
    return emulate_shuffle(mask, value, source, source < end);
}

#define __activemask() emulation::active_lanes(__LINE__)
inline unsigned int __ballot_sync(unsigned int mask, int predicate)
{
    return emulation::exchange(mask, predicate, [=](auto of) {
        unsigned int found = 0, lanes = mask & emulation::live_lanes();
        for (unsigned int k = 0; k < 32; ++k)
            if (lanes >> k & 1) found |= (unsigned int)(of(k) != 0) << k;
        return found;
    });
}
// Whether the predicate is not 0 (`found`) and whether it is 0 (`missing`) on some lane of the mask.
inline void emulate_warp_vote(unsigned int mask, int predicate, bool &found, bool &missing)
{
    unsigned int found_in = 0, lanes = 0;
    emulation::exchange(mask, predicate, [&](auto of) {
        lanes = mask & emulation::live_lanes();
        for (unsigned int k = 0; k < 32; ++k)
            if (lanes >> k & 1) found_in |= (unsigned int)(of(k) != 0) << k;
        return 0;
    });
    found = found_in != 0;
    missing = found_in != lanes;
}
inline int __any_sync(unsigned int mask, int predicate)
{
    bool found, missing;
    emulate_warp_vote(mask, predicate, found, missing);
    return found;
}
inline int __all_sync(unsigned int mask, int predicate)
{
    bool found, missing;
    emulate_warp_vote(mask, predicate, found, missing);
    return !missing;
}
inline int __uni_sync(unsigned int mask, int predicate)
{
    bool found, missing;
    emulate_warp_vote(mask, predicate, found, missing);
    return !(found && missing);
}
template <typename T>
unsigned int __match_any_sync(unsigned int mask, T value)
{
    return emulation::exchange(mask, value, [=](auto of) {
        unsigned int found = 0, lanes = mask & emulation::live_lanes();
        for (unsigned int k = 0; k < 32; ++k)
            if (lanes >> k & 1) found |= (unsigned int)(of(k) == value) << k;
        return found;
    });
}
template <typename T>
unsigned int __match_all_sync(unsigned int mask, T value, int *all)
{
    unsigned int same = emulation::exchange(mask, value, [=](auto of) {
        unsigned int lanes = mask & emulation::live_lanes();
        for (unsigned int k = 0; k < 32; ++k)
            if (lanes >> k & 1 && !(of(k) == value)) return 0u;
        return mask;
    });
    *all = same != 0;
    return same;
}

#define EMULATE_REDUCE(name, expression)                                                        \
    template <typename T>                                                                       \
    T __reduce_##name##_sync(unsigned int mask, T value)                                        \
    {                                                                                           \
        return emulation::exchange(mask, value, [=](auto of) {                                  \
            T a = value;                                                                        \
            for (unsigned int k = 0; k < 32; ++k)                                               \
                if (k != emulation::lane() && (mask & emulation::live_lanes()) >> k & 1) {      \
                    T b = of(k);                                                                \
                    a = expression;                                                             \
                }                                                                               \
            return a;                                                                           \
        });                                                                                     \
    }
EMULATE_REDUCE(add, a + b)
EMULATE_REDUCE(min, b < a ? b : a)
EMULATE_REDUCE(max, a < b ? b : a)
EMULATE_REDUCE(and, a &b)
EMULATE_REDUCE(or, a | b)
EMULATE_REDUCE(xor, a ^ b)

// ---- atomics: fibers switch only at barriers, so that plain code is atomic ------------------------------------------

#define EMULATE_ATOMIC(name, expression)                                                        \
    template <typename T>                                                                       \
    T name(T *address, decltype(T()) value)                                                     \
    {                                                                                           \
        T old = *address;                                                                       \
        *address = expression;                                                                  \
        return old;                                                                             \
    }                                                                                           \
    template <typename T>                                                                       \
    T name##_block(T *address, decltype(T()) value) { return name(address, value); }            \
    template <typename T>                                                                       \
    T name##_system(T *address, decltype(T()) value) { return name(address, value); }
EMULATE_ATOMIC(atomicAdd, old + value)
EMULATE_ATOMIC(atomicSub, old - value)
EMULATE_ATOMIC(atomicExch, value)
EMULATE_ATOMIC(atomicMin, value < old ? value : old)
EMULATE_ATOMIC(atomicMax, old < value ? value : old)
EMULATE_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
EMULATE_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
EMULATE_ATOMIC(atomicAnd, old &value)
EMULATE_ATOMIC(atomicOr, old | value)
EMULATE_ATOMIC(atomicXor, old ^ value)
template <typename T>
T atomicCAS(T *address, decltype(T()) expected, decltype(T()) desired)
{
    T old = *address;
    if (old == expected) *address = desired;
    return old;
}

#include "cuda_emulation_math.h"
