#include "complex"
