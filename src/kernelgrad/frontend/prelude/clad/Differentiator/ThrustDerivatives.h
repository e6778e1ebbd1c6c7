// Stands in for Clad's header: thrust's functions are differentiated as they are.
#pragma once

#include "Differentiator.h"
