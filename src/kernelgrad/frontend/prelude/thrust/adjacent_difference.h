#include "../kernelgrad/thrust_segments.h"
