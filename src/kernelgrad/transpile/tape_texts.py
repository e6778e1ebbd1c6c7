"""The text of what provides memory for tapes behind pointers: `tape_memory` says what needs it."""

from __future__ import annotations

from ..backends.cuda.names import in_namespace, once
from .growing_tapes import ARENA, LAUNCH
from .undone_launches import UNDONE

_THREAD = """\
static inline __device__ size_t thread_number()
{
    size_t block = ((size_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    size_t thread = ((size_t)threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return block * ((size_t)blockDim.x * blockDim.y * blockDim.z) + thread;
}
"""
_TEXT = """\
// Memory for what the threads of a launch keep for another one. First the number of tapes that nobody has used, then
// a part for each thread.
struct Tapes {
    unsigned char *memory;
    size_t each, from;
ARENA
    // Of another function: what follows the first bytes of each part.
    __device__ Tapes at(size_t offset) const { return {memory, each, from + offsetPASSED}; }
NEW
    __device__ unsigned char *make(size_t offset) const
    {
        unsigned char *tape = memory + 256 + thread_number() * each + from + offset;
        *(unsigned char **)tape = memory;
        atomicAdd((unsigned long long *)memory, 1ull);
        return tape;
    }
};

// Whether it is a tape, and not what stands for one that found no room.
static inline __device__ bool is_kept(void *tape) { return *(void **)tape != nullptr; }

// Once a tape is used, its memory is for the next. The lowest bit of its first word says that it was.
static inline __device__ void used(void *tape)
{
    if (!is_kept(tape)) return;
    unsigned long long counter = atomicOr((unsigned long long *)tape, 1ull);
    if (counter % 2 == 0) atomicAdd((unsigned long long *)counter, ~0ull);
}

struct TapeMemory {
    size_t nbytes;
    unsigned char *memory;
};

// All that launches were given.
static inline std::vector<TapeMemory> &tape_memory()
{
    static std::vector<TapeMemory> given;
    return given;
}

// Asks the device what is used once there is much of it.
static inline unsigned char *new_tapes(size_t nbytes, cudaStream_t stream)
{
    std::vector<TapeMemory> &given = tape_memory();
    size_t total = nbytes;
    for (const TapeMemory &one : given) total += one.nbytes;
    for (size_t k = 0; k < given.size() && total > ((size_t)1 << 28); ++k) {
        unsigned long long unused = 1;
        if (given[k].nbytes != nbytes) continue;
        cudaMemcpy(&unused, given[k].memory, sizeof unused, cudaMemcpyDeviceToHost);
        if (unused == 0) return given[k].memory;
    }
    unsigned char *memory = nullptr;
    if (cudaMalloc((void **)&memory, nbytes) != cudaSuccess) {
        fprintf(stderr, "no %zu bytes for the tapes of a launch\\n", nbytes);
        abort();
    }
    cudaMemsetAsync(memory, 0, 256, stream);
    given.push_back({nbytes, memory});
    return memory;
}

// For a launch.
static inline Tapes tapes_for(dim3 grid, dim3 block, cudaStream_t stream, size_t each)
{
    size_t threads = (size_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    return {new_tapes(256 + threads * each, stream), each, 0NONE};
}
"""
_DROP = """\
// What was too small.
static inline void drop_tapes(unsigned char *memory)
{
    std::vector<TapeMemory> &given = tape_memory();
    for (size_t k = given.size(); k-- > 0;)
        if (given[k].memory == memory) given.erase(given.begin() + k);
    cudaFree(memory);
}
"""
_PLAINLY = {"ARENA\n": "\n", "PASSED": "", "NEW\n": "\n", "NONE": ""}
_WITH_ARENA = {
    "ARENA\n": "    unsigned char *arena; // for those whose number or size is not a constant\n    long long room;\n\n",
    "PASSED": ", arena, room",
    "NEW\n": "\n    __device__ NewTape make() const { return {arena, room}; }\n\n",
    "NONE": ", nullptr, 0",
}
_INCLUDES = "#include <algorithm>\n#include <cstddef>\n#include <cstdio>\n#include <cstdlib>\n#include <vector>\n"


def tape_text(with_arena: bool) -> str:
    """`with_arena`: some tapes have no constant size, or are made in loops."""
    text = _TEXT
    for part, instead in (_WITH_ARENA if with_arena else _PLAINLY).items():
        text = text.replace(part, instead)
    thread, tapes = once("thread_number", _THREAD), once("tapes", text)
    pieces = [thread, ARENA, tapes, _DROP, UNDONE, LAUNCH] if with_arena else [thread, tapes]
    return _INCLUDES + "".join(in_namespace(pieces))
