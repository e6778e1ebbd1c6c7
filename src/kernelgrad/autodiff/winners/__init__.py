"""Whose value an atomic maximum, minimum or exchange, or a tree of them, left (rule 18)."""
