"""Several neighbouring elements for each thread, 16 bytes at a time."""
