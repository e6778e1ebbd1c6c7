#include "../kernelgrad/cub_device.h"
#include "../kernelgrad/cub_items.h"
