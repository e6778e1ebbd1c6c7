"""What has no derivative that could be right, refused at its source line."""
