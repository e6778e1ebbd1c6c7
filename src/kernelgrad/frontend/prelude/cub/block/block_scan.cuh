#include "../../kernelgrad/cub_block.h"
