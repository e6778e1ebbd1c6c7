"""What the reverse needs of the forward sweep, and how it gets it: in scope, again, or from a tape."""
