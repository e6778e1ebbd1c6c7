"""Estimates of what a thread does: bytes, loads, arithmetic."""
