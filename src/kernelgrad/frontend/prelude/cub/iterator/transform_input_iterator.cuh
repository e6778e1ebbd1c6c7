#include "../../kernelgrad/cub_device.h"
