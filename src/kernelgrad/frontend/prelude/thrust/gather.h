#include "../kernelgrad/thrust_algorithms.h"
