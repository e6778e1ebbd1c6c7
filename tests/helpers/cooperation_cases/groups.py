"""Cooperative groups: blocks, tiles, coalesced threads."""

from __future__ import annotations

from dataclasses import replace

from .case import Case, tree

_INCLUDE = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
"""

_CASES = {
    "block_group": Case(f"""
        cg::thread_block block = cg::this_thread_block();
        __shared__ double s[32];
        int r = block.thread_rank();
        s[r] = x[i] * x[i];
        block.sync();
        {tree("s[r] += s[r + d]").replace("__syncthreads()", "cg::sync(block)").replace("t < d", "r < d")}
        y[i] = s[0] * x[i] / block.size() + block.group_index().x;
        """),
    "block_group_in_two_dimensions": Case(
        """
        auto block = cg::this_thread_block();
        __shared__ double s[32];
        int r = block.thread_rank(), at = blockIdx.x * block.num_threads() + r;
        s[r] = x[at];
        block.sync();
        y[at] = s[31 - r] * s[block.thread_index().y];
        """,
        block=(8, 4),
    ),
    "tile_shuffles": Case("""
        auto tile = cg::tiled_partition<32>(cg::this_thread_block());
        double v = x[i];
        for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d) * 0.5;
        double w = tile.shfl(v, 0) * x[i];
        w += tile.shfl_up(w, 3) * tile.shfl_xor(v, 5);
        if (tile.any(w > 3)) w *= 2;
        if (!tile.all(w > 0)) w = 0;
        y[i] = w * __popc(tile.ballot(tile.thread_rank() % 3 == 0));
        """),
    "small_tiles": Case("""
        cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::this_thread_block());
        __shared__ double s[32];
        double v = x[i];
        for (int d = 4; d > 0; d /= 2) v += tile.shfl_xor(v * v, d);
        s[t] = v;
        tile.sync();
        double w = s[t ^ 7] * tile.shfl(v, 2) + tile.shfl_down(v, 1);
        y[i] = w * (tile.meta_group_rank() + 1) + tile.shfl_up(w * w, 2) * tile.ballot(tile.thread_rank() > 2);
        """),
    "tiles_of_tiles": Case("""
        auto warp = cg::tiled_partition<32>(cg::this_thread_block());
        auto four = cg::tiled_partition<4>(warp);
        double v = x[i] * four.shfl_xor(x[i], 1);
        y[i] = warp.shfl(v, four.meta_group_rank()) * v;
        """),
    "group_sum": Case("""
        auto tile = cg::tiled_partition<16>(cg::this_thread_block());
        double v = x[i];
        y[i] = cg::reduce(tile, v * v, cg::plus<double>()) * v;
        """),
    "group_extremes": Case("""
        auto tile = cg::tiled_partition<32>(cg::this_thread_block());
        double high = cg::reduce(tile, x[i] * x[i], cg::greater<double>());
        double low = cg::reduce(tile, x[i], cg::less<double>());
        y[i] = high * x[i] + low * low;
        """),
    "group_integers": Case("""
        auto tile = cg::tiled_partition<8>(cg::this_thread_block());
        int rank = cg::reduce(tile, t * 7 % 13, cg::greater<int>()), sum = cg::reduce(tile, t, cg::plus<int>());
        y[i] = x[i] * x[rank] * sum;
        """),
    "group_scans": Case("""
        auto tile = cg::tiled_partition<16>(cg::this_thread_block());
        double v = x[i], sum = cg::inclusive_scan(tile, v * v);
        double before = cg::exclusive_scan(tile, v, cg::plus<double>());
        y[i] = sum * before * v;
        """),
    "group_function": Case(
        """
        __shared__ double s[32];
        auto block = cg::this_thread_block();
        double mean = total(block, s, x[i]) / 32;
        y[i] = total(block, s, (x[i] - mean) * (x[i] - mean)) * x[i];
        """,
        before="""
        template <class Group> __device__ double total(const Group& group, double* s, double v) {
          int r = group.thread_rank();
          for (int d = group.size() / 2; d > 0; d /= 2) {
            s[r] = v;
            group.sync();
            if (r < d) v += s[r + d];
            group.sync();
          }
          s[r] = v;
          group.sync();
          v = s[0];
          group.sync();
          return v;
        }""",
    ),
    "copies_by_a_group": Case(
        """
        auto block = cg::this_thread_block();
        __shared__ double s[64];
        cg::memcpy_async(block, s, x + blockIdx.x, sizeof(double) * 64);
        cg::wait(block);
        y[i] = s[t] * s[63 - t];
        """,
        before="#include <cooperative_groups/memcpy_async.h>\n",
    ),
    "groups_known_at_run_time": Case("""
        cg::thread_block block = cg::this_thread_block();
        cg::thread_group tile = cg::tiled_partition(block, 8), whole = block;
        __shared__ double s[32];
        s[t] = x[i];
        tile.sync();
        double v = s[t ^ 7] * x[i];
        whole.sync();
        s[t] = v;
        whole.sync();
        y[i] = s[31 - t] + v * tile.thread_rank();
        """),
    "coalesced_group": Case("""
        double v = x[i];
        if (t % 3 == 0) {
          auto active = cg::coalesced_threads();
          double first = active.shfl(v, 0);
          v = v * first + active.shfl_down(v, 1) * active.size();
          v += active.shfl_up(v * v, 1) + active.thread_rank();
        }
        y[i] = v * v;
        """),
    "coalesced_sum": Case("""
        double v = x[i];
        if (x[i] > 0.5) {
          auto active = cg::coalesced_threads();
          v *= cg::reduce(active, v, cg::plus<double>());
        }
        y[i] = v;
        """),
}

CASES = {name: replace(case, before=_INCLUDE + case.before) for name, case in _CASES.items()}
