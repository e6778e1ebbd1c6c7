#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(int* y) {
  cg::grid_group g = cg::this_grid();
  g.sync();  // error: UnsupportedError: grid-wide synchronisation is not supported // at: g.sync()
}
