"""Tapes behind pointers whose size or number is not a constant. On the device they lie in each thread's part of an
arena, and launches that find it too small are made again with a larger one; on the host they grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backends.cuda.names import in_namespace, once
from ..backends.cuda.types import Types
from ..ir.ops import Function

if TYPE_CHECKING:
    from .functions import Around

TAPE = "_tape"  # the parameter of both halves of a reverse
_ROOM = "1ll << 60"  # more than there is

# ---- on the host

_FRAME = """\
// A tape of the host's, which grows.
struct Frame {
    unsigned char *bytes = nullptr;
    size_t room = 0;

    Frame() = default;
    explicit Frame(void *tape) : bytes((unsigned char *)tape), room((size_t)1 << 60) {}
    Frame(const Frame &) = delete;
    ~Frame() { std::free(bytes); }
    unsigned char *operator+(size_t at) { return &(*this)[at]; }
    unsigned char &operator*() { return (*this)[0]; }
    explicit operator long long *() { return (long long *)&(*this)[0]; }

    unsigned char &operator[](size_t at)
    {
        if (at + 16 <= room) return bytes[at];
        size_t wanted = 2 * (at + 64);
        void *larger = std::realloc(bytes, wanted);
        if (larger == nullptr) throw std::bad_alloc();
        bytes = (unsigned char *)larger;
        room = wanted;
        return bytes[at];
    }
    unsigned char *released()
    {
        unsigned char *found = bytes;
        bytes = nullptr;
        return found;
    }
};
"""
FRAME_TEXT = "#include <cstddef>\n#include <cstdlib>\n#include <new>\n\n" + "".join(
    in_namespace([once("frame", _FRAME)])
)


def in_frame(text: str, function: Function, types: Types) -> str:
    """The text of a half, with a tape that grows as its parameter."""
    param = next(p for p in function.params if p.name == TAPE)
    names = (f"__restrict__ {TAPE}", TAPE)
    declared = next(d for n in names if (d := types.declare(param.type, n, param.const)) in text)
    return text.replace(declared, f"Frame &{TAPE}", 1)


def on_host(around: Around, augmented: bool, held: str) -> None:
    around.given |= {TAPE: "frame", "_room": _ROOM, "_size": "&size"}
    around.before += ["kg::Frame frame;" if augmented else "kg::Frame frame(tape);", "long long size = 0;"]
    if augmented:
        around.returned.append(f"({held})frame.released()")
    else:
        around.params.append(f"{held}tape")


# ---- on the device

_ARENA = """\
// A tape that a thread is about to make, behind those that it has made before: its part of the memory begins with how
// many bytes these have.
struct NewTape {
    unsigned char *arena;
    long long each;

    __device__ unsigned char *part() const { return arena + 256 + thread_number() * each; }
    __device__ unsigned char *place() const { return part() + 16 + *(long long *)part(); }
    __device__ unsigned char *frame() const { return place() + 16; }
    __device__ long long room() const { return each - 32 - *(long long *)part(); }

    // The tape, once its frame is known to have so many bytes; without room for it, what stands for one.
    __device__ unsigned char *keep(long long nbytes) const
    {
        unsigned char *tape = place();
        long long used = *(long long *)part() + 16 + (nbytes + 15) / 16 * 16;
        *(long long *)part() = used;
        atomicMax((unsigned long long *)arena + 1, (unsigned long long)(used + 16));
        if (used + 16 > each) return arena + 64;
        *(unsigned char **)tape = arena;
        atomicAdd((unsigned long long *)arena, 1ull);
        return tape;
    }
};
"""
_LAUNCH = """\
// Launches a kernel that makes any number of tapes, of any size, and waits for it. `each`: bytes of those that a thread
// has a place for.
template <typename... P>
void launch_with_tapes(void (*kernel)(Tapes, P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                       size_t each, typename Plainly<P>::type... args)
{
    static long long room = 512;
    size_t threads = (size_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    Tapes tapes = {nullptr, 0, 0, nullptr, 0};
    if (each > 0) tapes = tapes_for(grid, block, stream, each);
    std::vector<Before> before;
    cudaDeviceSynchronize();
    (Before::keep(before, args), ...);
    std::vector<unsigned long long> unused(tape_memory().size());
    for (size_t k = 0; k < unused.size(); ++k)
        cudaMemcpy(&unused[k], tape_memory()[k].memory, sizeof unused[k], cudaMemcpyDeviceToHost);
    for (long long needed = 0;;) {
        room = std::max(room, (needed + 15) / 16 * 16);
        size_t nbytes = 256 + threads * room;
        tapes.arena = new_tapes(nbytes, stream);
        tapes.room = room;
        cudaMemsetAsync(tapes.arena, 0, nbytes, stream);
        kernel<<<grid, block, shared, stream>>>(tapes, args...);
        if (cudaPeekAtLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) break;
        cudaMemcpy(&needed, tapes.arena + 8, sizeof needed, cudaMemcpyDeviceToHost);
        if (needed <= room) break;
        drop_tapes(tapes.arena);
        for (const Before &one : before) cudaMemcpy(one.memory, one.copy, one.nbytes, cudaMemcpyDefault);
        for (size_t k = 0; k < unused.size(); ++k)
            cudaMemcpy(tape_memory()[k].memory, &unused[k], sizeof unused[k], cudaMemcpyHostToDevice);
    }
    for (const Before &one : before) cudaFree(one.copy);
}
"""
ARENA, LAUNCH = once("arena", _ARENA), once("launch_with_tapes", _LAUNCH)


def in_arena(around: Around, held: str, nbytes: int | None) -> None:
    """`nbytes`: of the frame, if that is a constant; it goes elsewhere if there is no room."""
    around.params.append("kg::NewTape tape")
    around.has_memory = True
    if nbytes is None:
        around.before.append("long long size = 0;")
        around.given |= {TAPE: "tape.frame()", "_room": "tape.room()", "_size": "&size"}
        around.returned.append(f"({held})tape.keep(size)")
    else:
        around.before.append(f"alignas(16) unsigned char spare[{max(1, nbytes)}];")
        around.given[TAPE] = f"tape.room() < {nbytes} ? spare : tape.frame()"
        around.returned.append(f"({held})tape.keep({nbytes})")
