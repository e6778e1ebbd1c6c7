"""A block of known shape, interpreted with all its threads at once: their integers (`threads`), cells of shared memory,
lanes."""
