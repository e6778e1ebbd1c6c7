"""Programs of launches: recorded from Python, reversed within a budget of memory. Start reading at `record.py`."""
