"""Second derivatives: `gradient` and `jvp` of a gradient, `gradient` of a tangent, `hvp`. See `second_order.py`."""
