"""Reweighters: weights ≥ 0, per response or per token."""
