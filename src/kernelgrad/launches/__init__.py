"""What a launch of a derivative needs besides its kernel."""
