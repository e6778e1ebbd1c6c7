"""Sums over the lanes of a warp, for addresses that they share."""
