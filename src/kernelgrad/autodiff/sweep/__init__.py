"""The code of a gradient: the forward sweep, then the reverse over every operation of it."""
