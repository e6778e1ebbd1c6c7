#include "../kernelgrad/thrust_memory.h"
