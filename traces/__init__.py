"""Traces: the columns of a rollout, how they are stored, read, imported and generated."""
