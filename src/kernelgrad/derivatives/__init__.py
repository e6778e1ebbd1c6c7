"""The objects users hold: gradients, splits, tangents, functions; and what they ask of them."""
