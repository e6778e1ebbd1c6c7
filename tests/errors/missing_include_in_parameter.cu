#include "my_types.h"
__global__ void k(MyType t, int* y) {  // error: ParseError: unknown type name 'MyType' // at: MyType
  y[0] = t.v;
}
