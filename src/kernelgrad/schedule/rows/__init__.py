"""Rows that stay in registers or shared memory between the loops that go over them."""
