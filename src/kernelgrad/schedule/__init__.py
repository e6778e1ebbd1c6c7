"""Finished gradients made faster for one shape of block."""
