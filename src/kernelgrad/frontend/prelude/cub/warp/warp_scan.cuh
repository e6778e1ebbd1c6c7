#include "../../kernelgrad/cub_warp.h"
