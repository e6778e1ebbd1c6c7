"""What is true of a function, of its accesses, its threads, its loops. Rewrites nothing; all that follow may ask."""
