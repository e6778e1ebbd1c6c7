"""Running compiled kernels: arguments in, launches out."""
