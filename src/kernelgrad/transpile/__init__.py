"""Derivatives as files for plain nvcc: host functions around kernels, and programs whose requests are replaced."""
