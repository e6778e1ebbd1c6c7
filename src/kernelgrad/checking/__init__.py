"""`check_gradient`: reverse mode against forward mode against finite differences."""
