// In kernelgrad.h, which every translation unit includes.
