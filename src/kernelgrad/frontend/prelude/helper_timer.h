// The CUDA samples' timers.
#include "helper_functions.h"
