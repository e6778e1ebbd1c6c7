// The threads of the emulation: fibers, and how they meet. Compiled once, and linked to every text.
#include "cuda_emulation.h"

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <vector>

namespace emulation {

struct Meeting {
    std::vector<bool> arrived;
    unsigned long generation = 0;
};

struct Fiber : Thread {
    ucontext_t context;
    std::unique_ptr<char[]> memory{new char[stack_bytes]};
    bool alive = false;
    bool waits = false;    // for other threads
    int asks = 0;          // the line of the __activemask it stands at, or 0
    unsigned int with = 0; // the lanes that came there with it, once that is known
};

Block block;
alignas(1024) unsigned char dynamic_shared[256 * 1024];

static std::vector<std::unique_ptr<Fiber>> fibers;
static ucontext_t scheduler;
static unsigned int live = 0;
static bool progress = false;
static std::string error;
// One meeting for the block, and one for each set of lanes of a warp that meet under a mask.
static Meeting barrier;
static std::map<std::pair<unsigned int, unsigned int>, Meeting> warps;
static std::vector<unsigned long long> exchanged;
static std::vector<int> predicates;
static void (*runs)(void *) = nullptr;
static void *arguments = nullptr;

void fail(const char *what) { throw std::runtime_error(what); }

static Fiber *current() { return static_cast<Fiber *>(block.current); }

static void yield() { swapcontext(&current()->context, &scheduler); }

bool is_live(unsigned int thread) { return thread < block.count && fibers[thread]->alive; }

// Waits until every live thread for which `takes_part` holds has come here.
template <typename Test>
static void meet(Meeting &meeting, Test takes_part)
{
    Fiber *self = current();
    meeting.arrived.resize(block.count);
    meeting.arrived[self->index] = true;
    progress = true;
    unsigned long generation = meeting.generation;
    self->waits = true;
    while (meeting.generation == generation) {
        bool complete = true;
        for (unsigned int k = 0; k < block.count && complete; ++k)
            complete = !takes_part(k) || !is_live(k) || meeting.arrived[k];
        if (complete) {
            ++meeting.generation;
            for (unsigned int k = 0; k < block.count; ++k)
                if (meeting.arrived[k]) fibers[k]->waits = false;
            meeting.arrived.assign(block.count, false);
            progress = true;
        } else {
            yield();
        }
    }
}

void block_barrier() { meet(barrier, [](unsigned int) { return true; }); }

void warp_barrier(unsigned int mask)
{
    if (!(mask >> lane() & 1)) fail("a warp function without its own lane in the mask");
    unsigned int own = warp();
    meet(warps[{own, mask}],
         [=](unsigned int k) { return k / warp_width == own && (mask >> k % warp_width & 1); });
}

// As if lanes waited for each other as long as they can: when each lane of the warp has ended, waits in a meeting or asks
// for the mask, those that ask where this one does go on together.
unsigned int active_lanes(int line)
{
    Fiber *self = current();
    self->asks = line;
    self->with = 0;
    progress = true;
    while (!self->with) {
        unsigned int lanes = 0;
        bool settled = true;
        for (unsigned int k = 0; k < warp_width; ++k) {
            unsigned int thread = warp() * warp_width + k;
            if (!is_live(thread)) continue;
            Fiber &other = *fibers[thread];
            settled = settled && (other.asks || other.waits);
            lanes |= (unsigned int)(other.asks == line) << k;
        }
        if (settled) {
            for (unsigned int k = 0; k < warp_width; ++k)
                if (lanes >> k & 1) {
                    Fiber &other = *fibers[warp() * warp_width + k];
                    other.with = lanes;
                    other.asks = 0;
                }
            progress = true;
        } else {
            yield();
        }
    }
    return self->with;
}

static void enter()
{
    try {
        runs(arguments);
    } catch (const std::exception &e) {
        if (error.empty()) error = e.what();
    }
    current()->alive = false;
    --live;
    progress = true;
    swapcontext(&current()->context, &scheduler);
}

static void run_block()
{
    block.count = block.size.x * block.size.y * block.size.z;
    live = block.count;
    barrier = Meeting{};
    warps.clear();
    exchanged.assign((block.count + warp_width - 1) / warp_width * warp_width, 0);
    block.exchange = exchanged.data();
    predicates.assign(block.count, 0);
    block.predicates = predicates.data();
    while (fibers.size() < block.count) fibers.emplace_back(new Fiber);
    for (unsigned int k = 0; k < block.count; ++k) {
        Fiber &fiber = *fibers[k];
        fiber.index = k;
        fiber.stack = fiber.memory.get();
        fiber.thread = {k % block.size.x, k / block.size.x % block.size.y, k / block.size.x / block.size.y};
        fiber.alive = true;
        fiber.waits = false;
        fiber.asks = 0;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.memory.get();
        fiber.context.uc_stack.ss_size = stack_bytes;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
    }
    while (live && error.empty()) {
        progress = false;
        for (unsigned int k = 0; k < block.count && error.empty(); ++k) {
            if (!fibers[k]->alive) continue;
            block.current = fibers[k].get();
            swapcontext(&scheduler, &current()->context);
        }
        if (!progress) error = "deadlock: threads wait at different barriers";
    }
}

const char *run_grid(dim3 grid, dim3 size, void (*run)(void *), void *with)
{
    runs = run;
    arguments = with;
    block.grid = grid;
    block.size = size;
    error.clear();
    for (unsigned int z = 0; z < grid.z; ++z)
        for (unsigned int y = 0; y < grid.y; ++y)
            for (unsigned int x = 0; x < grid.x; ++x) {
                block.index = {x, y, z};
                run_block();
                if (!error.empty()) return error.c_str();
            }
    return nullptr;
}

} // namespace emulation
