"""Selectors: weights 0 or 1."""
