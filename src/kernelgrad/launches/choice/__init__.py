"""Which form of a derivative a launch gets."""
