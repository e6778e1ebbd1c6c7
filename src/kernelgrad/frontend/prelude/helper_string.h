// The CUDA samples' headers.
#include "helper_cuda.h"
