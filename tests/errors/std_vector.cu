#include <vector>
__global__ void k(int* y) {
  std::vector<int> v(3);  // error: ParseError: no matching constructor for initialization of 'std::vector<int>' // at: v(3);
  y[0] = v[0];
}
