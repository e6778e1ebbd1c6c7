"""C++ that host functions of a file share, each piece written once and only where it is used."""

from __future__ import annotations

from collections.abc import Iterable

from ..backends.cuda.names import in_namespace, once

SCRATCH = """\
// Device memory of a launch: freed behind the launch in its stream, on every path out. Keeps the first error.
struct Scratch {
    cudaStream_t stream;
    cudaError_t error = cudaSuccess;
    std::vector<void *> kept;

    explicit Scratch(cudaStream_t stream) : stream(stream) {}
    Scratch(const Scratch &) = delete;
    ~Scratch() { finish(); }

    bool failed(cudaError_t found)
    {
        if (error == cudaSuccess) error = found;
        return error != cudaSuccess;
    }

    template <typename T>
    T *get(size_t nbytes)
    {
        void *memory = nullptr;
        if (nbytes == 0 || error != cudaSuccess || failed(cudaMallocAsync(&memory, nbytes, stream))) return nullptr;
        kept.push_back(memory);
        return (T *)memory;
    }

    template <typename T>
    T *filled(size_t nbytes, int byte)
    {
        T *memory = get<T>(nbytes);
        if (memory != nullptr) failed(cudaMemsetAsync((void *)memory, byte, nbytes, stream));
        return memory;
    }

    template <typename T>
    T *copy_of(const T *source, size_t nbytes)
    {
        T *memory = get<T>(nbytes);
        if (memory != nullptr) failed(cudaMemcpyAsync((void *)memory, source, nbytes, cudaMemcpyDefault, stream));
        return memory;
    }

    template <typename T>
    T *copy_of(const std::vector<T> &source)
    {
        return copy_of(source.data(), source.size() * sizeof(T));
    }

    cudaError_t finish()
    {
        for (; !kept.empty(); kept.pop_back()) failed(cudaFreeAsync(kept.back(), stream));
        return error;
    }
};
"""

TRIPS = """\
// How often a loop from `lower` to `upper` runs.
inline long long trips(long long lower, long long upper, long long step)
{
    if (step > 0) return upper > lower ? (upper - lower + step - 1) / step : 0;
    return lower > upper ? (lower - upper - step - 1) / -step : 0;
}
"""

COUNTS = """\
// What each block keeps of several kinds of things, per thread, as a kernel has counted it. Waits for the stream.
struct Counts {
    size_t blocks, kinds;
    std::vector<long long> found;

    Counts(Scratch &scratch, const long long *counts, size_t blocks, size_t kinds)
        : blocks(blocks), kinds(kinds), found(blocks * kinds)
    {
        if (scratch.error != cudaSuccess) return;
        size_t nbytes = found.size() * sizeof(long long);
        scratch.failed(cudaMemcpyAsync(found.data(), counts, nbytes, cudaMemcpyDeviceToHost, scratch.stream));
        scratch.failed(cudaStreamSynchronize(scratch.stream));
    }

    long long most(size_t kind) const
    {
        long long most = 1;
        for (size_t block = 0; block < blocks; ++block) most = std::max(most, found[block * kinds + kind]);
        return most;
    }

    // Where each block's part begins, and behind the last of them how long all are together.
    std::vector<long long> starts(size_t kind, size_t threads) const
    {
        std::vector<long long> starts(blocks + 1);
        for (size_t block = 0; block < blocks; ++block)
            starts[block + 1] = starts[block] + found[block * kinds + kind] * (long long)threads;
        return starts;
    }
};
"""

ALLOW_SHARED = """\
// Above 48 KB, a kernel's dynamic shared memory must be asked for.
template <typename Kernel>
cudaError_t allow_shared(Kernel *kernel, size_t nbytes)
{
    if (nbytes <= 48 * 1024) return cudaSuccess;
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)nbytes);
}
"""

AS = once(
    "as",
    """\
// The same bytes as another type.
template <typename To, typename From>
__host__ __device__ To as(const From &from)
{
    static_assert(sizeof(To) == sizeof(From), "laid out alike");
    To to;
    memcpy((void *)&to, (const void *)&from, sizeof(To));
    return to;
}

// The same bytes as whatever type is wanted.
template <typename From>
struct Alike {
    From from;
    template <typename To>
    operator To() const { return as<To>(from); }
};
template <typename From>
Alike<From> alike(const From &from)
{
    return Alike<From>{from};
}
""",
)

_LOGS = "kg::add_logged"
_PIECES = {"scratch": SCRATCH, "trips": TRIPS, "counts": COUNTS, "allow_shared": ALLOW_SHARED}
_WORDS = {"scratch": "kg::Scratch", "trips": "kg::trips", "counts": "kg::Counts", "allow_shared": "kg::allow_shared"}
INCLUDES = ("algorithm", "cstddef", "vector", "cuda_runtime.h")


def support_for(texts: Iterable[str]) -> str:
    """The pieces that the texts use, in a namespace of their own."""
    whole = "\n".join(texts)
    used = [once(name, text) for name, text in _PIECES.items() if _WORDS[name] in whole]
    if _LOGS in whole:
        from .ordered_logs import ordered_logs

        used.append(once("ordered_logs", ordered_logs()))
    return "".join(in_namespace(used))
