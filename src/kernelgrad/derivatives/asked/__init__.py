"""What a user asks of a derivative, checked against the function."""
