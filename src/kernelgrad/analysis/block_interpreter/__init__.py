"""A block of known shape, played through with all its threads: cells of shared memory, lanes."""
