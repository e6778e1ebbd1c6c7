"""The order of loads, stores and divisions."""
