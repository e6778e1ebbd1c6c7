"""What a gradient does and why, in words and bytes."""
