#include "../kernelgrad/cub_threads.h"
