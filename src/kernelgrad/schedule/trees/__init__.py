"""Trees of sums, maxima and minima over a block: computed at once instead of level by level."""
