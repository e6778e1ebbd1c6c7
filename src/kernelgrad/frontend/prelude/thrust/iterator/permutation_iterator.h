#include "../../kernelgrad/thrust_iterators.h"
