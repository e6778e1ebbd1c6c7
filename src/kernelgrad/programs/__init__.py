"""Host functions: their skeleton is interpreted, what launches nothing runs natively. Start reading at `interpreter.py`."""
