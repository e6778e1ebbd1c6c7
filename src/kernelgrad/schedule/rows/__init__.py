"""Rows that stay in registers between the loops that go over them."""
