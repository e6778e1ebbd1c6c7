"""Addresses and integers as affine sums over threads, blocks and loop counters, and their bounds."""
