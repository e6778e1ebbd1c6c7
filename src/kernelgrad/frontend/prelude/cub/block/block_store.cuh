#include "../../kernelgrad/cub_items.h"
