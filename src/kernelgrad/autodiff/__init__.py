"""Derivatives of IR: the table of rules, forward mode and reverse mode. Everything made here is ordinary IR."""
