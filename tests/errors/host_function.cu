#include <string>
void host_only(const char*);
__global__ void k(int* y) {
  host_only("x");  // error: ParseError: no matching function for call to 'host_only' // at: host_only("x");
}
