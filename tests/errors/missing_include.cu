#include "my_types.h"
__global__ void k(int* y) {
  MyType t;  // error: ParseError: unknown type name 'MyType' // at: MyType
  y[0] = t.v;
}
