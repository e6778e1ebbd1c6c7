// The support kernels of gradients that are the same from run to run (see ordered_adds.py): logged updates are sorted by
// the element they go to, and those of one element are added up in the order in which they were logged.

using Key = unsigned long long;  // the number of an element, counted through all buffers one after another

constexpr Key UNUSED = ~0ull;  // of a slot in which nothing was logged: sorts behind all others
constexpr int THREADS = 256;   // per block of the sort
constexpr int ITEMS = 16;      // per thread of the sort
constexpr int TILE = THREADS * ITEMS;
constexpr int DIGIT_BITS = 4;
constexpr int DIGITS = 1 << DIGIT_BITS;
constexpr int SCANNERS = 1024;  // threads of the one block that adds up counts
constexpr int CHUNK = 32;       // sorted updates that one thread adds up

// ---- sorting: from the lowest digit to the highest, each time keeping the order of what has the same digit

// The keys do not depend on where the buffers lie, since how sums are split into chunks depends on the keys.
__global__ void make_keys(
    Key *addresses, long long *positions, long long count, const Key *starts, const Key *lengths, long long buffers,
    Key size)
{
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k >= count) return;
    Key address = addresses[k], key = UNUSED, first = 0;
    for (int buffer = 0; buffer < buffers; ++buffer) {
        Key element = (address - starts[buffer]) / size;
        if (key == UNUSED && address >= starts[buffer] && element < lengths[buffer]) key = first + element;
        first += lengths[buffer];
    }
    addresses[k] = key;
    positions[k] = k;
}

__device__ int digit(Key key, long long shift) { return (int)(key >> shift) & (DIGITS - 1); }

// How often each digit occurs in each block's tile: counts[digit][block].
__global__ void count_digits(const Key *keys, long long *counts, long long count, long long shift)
{
    __shared__ unsigned found[DIGITS];
    if (threadIdx.x < DIGITS) found[threadIdx.x] = 0;
    __syncthreads();
    long long start = blockIdx.x * (long long)TILE + threadIdx.x;
    for (int item = 0; item < ITEMS; ++item) {
        long long k = start + item * THREADS;
        if (k < count) atomicAdd(&found[digit(keys[k], shift)], 1u);
    }
    __syncthreads();
    if (threadIdx.x < DIGITS) counts[threadIdx.x * (long long)gridDim.x + blockIdx.x] = found[threadIdx.x];
}

// What stands before each count becomes the sum of those before it. One block.
__global__ void scan_counts(long long *counts, long long count)
{
    __shared__ long long sums[SCANNERS];
    int t = threadIdx.x;
    long long each = (count + SCANNERS - 1) / SCANNERS;
    long long start = t * each, end = start + each < count ? start + each : count;
    long long own = 0;
    for (long long k = start; k < end; ++k) own += counts[k];
    sums[t] = own;
    __syncthreads();
    for (int distance = 1; distance < SCANNERS; distance *= 2) {
        long long before = t >= distance ? sums[t - distance] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    long long running = sums[t] - own;
    for (long long k = start; k < end; ++k) {
        long long here = counts[k];
        counts[k] = running;
        running += here;
    }
}

// Moves every update to its place. A thread has ITEMS neighbours, so that the order of threads is that of updates.
__global__ void move_by_digit(
    const Key *keys, const long long *positions, Key *keys_to, long long *positions_to, const long long *starts,
    long long count, long long shift)
{
    __shared__ unsigned before[DIGITS][THREADS];  // how many of a digit the threads before have
    int t = threadIdx.x, lane = t % 32;
    for (int d = 0; d < DIGITS; ++d) before[d][t] = 0;
    long long first = blockIdx.x * (long long)TILE + t * ITEMS;
    for (int item = 0; item < ITEMS; ++item) {
        if (first + item < count) ++before[digit(keys[first + item], shift)][t];
    }
    __syncthreads();
    for (int d = t / 32; d < DIGITS; d += THREADS / 32) {
        unsigned running = 0;
        for (int start = 0; start < THREADS; start += 32) {
            unsigned own = before[d][start + lane], sum = own;
            for (int distance = 1; distance < 32; distance *= 2) {
                unsigned lower = __shfl_up_sync(0xffffffffu, sum, distance);
                if (lane >= distance) sum += lower;
            }
            before[d][start + lane] = running + sum - own;
            running += __shfl_sync(0xffffffffu, sum, 31);
        }
    }
    __syncthreads();
    for (int item = 0; item < ITEMS; ++item) {
        if (first + item >= count) break;
        Key key = keys[first + item];
        int d = digit(key, shift);
        long long to = starts[d * (long long)gridDim.x + blockIdx.x] + before[d][t]++;
        keys_to[to] = key;
        positions_to[to] = positions[first + item];
    }
}

// ---- adding up

template <typename T>
__device__ void add(T *const *starts, const Key *lengths, Key key, T sum)
{
    if (key == UNUSED) return;
    int buffer = 0;
    while (key >= lengths[buffer]) key -= lengths[buffer++];
    starts[buffer][key] += sum;
}

template <typename T>
__global__ void take_values(const T *values, const long long *positions, T *sorted, long long count)
{
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k < count) sorted[k] = values[positions[k]];
}

// Each thread adds up the runs of equal keys among CHUNK neighbours. A run in the middle is whole and goes to its
// element. The first and the last may go on in the neighbouring chunks: their sums are sorted updates again, two per
// chunk, for the next launch; unless this is the last, with one thread.
template <typename T>
__global__ void add_runs(
    T *const *starts, const Key *lengths, const Key *keys, const T *values, Key *next_keys, T *next_values,
    long long count, long long last)
{
    long long chunk = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long k = chunk * CHUNK, end = k + CHUNK < count ? k + CHUNK : count;
    if (k >= count) return;
    bool at_first = last == 0;
    Key key = keys[k];
    T sum = values[k];
    for (++k; k < end; ++k) {
        Key following = keys[k];
        if (following == key) {
            sum += values[k];
            continue;
        }
        if (at_first) {
            next_keys[2 * chunk] = key;
            next_values[2 * chunk] = sum;
        } else {
            add(starts, lengths, key, sum);
        }
        at_first = false;
        key = following;
        sum = values[k];
    }
    if (last != 0) {
        add(starts, lengths, key, sum);
        return;
    }
    if (at_first) {
        next_keys[2 * chunk] = key;
        next_values[2 * chunk] = sum;
    }
    next_keys[2 * chunk + 1] = key;
    next_values[2 * chunk + 1] = at_first ? -(T)0 : sum;  // nothing more of the only run
}
