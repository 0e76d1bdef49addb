"""Rows of a bench's tables, derived from its measurements."""
