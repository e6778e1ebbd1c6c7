"""Inputs whose elements collect their adjoints themselves: the pattern, and the kernel made from it (rule 9)."""
