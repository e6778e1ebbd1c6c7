"""Host functions: their skeleton is interpreted, loops without launches run natively. Start at `interpreter.py`."""
