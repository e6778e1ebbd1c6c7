"""Thread coarsening: one thread does the work of several threads, rows or blocks."""
