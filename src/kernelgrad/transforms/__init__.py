"""Passes over IR, one per file: `run(function, module) -> Function`. No pass mutates its input."""
