"""Simulation: the replay loop, the estimators, their uncertainty, and what they mean."""
