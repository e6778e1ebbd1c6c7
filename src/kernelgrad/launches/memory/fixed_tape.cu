// For tapes whose size the user gives (see fixed_tape.py): the host does not wait for what was counted.

// Ends everything where a block keeps more than there is room for: what would follow is wrong.
__global__ void require_room(const long long *counts, long long n, long long room)
{
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k < n && counts[k] > room) __trap();
}

// Where the parts of blocks begin that are all of the same size.
__global__ void mark_starts(long long *starts, long long n, long long step)
{
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k < n) starts[k] = k * step;
}
