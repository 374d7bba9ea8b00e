"""Intervals, tests and resampling that several commands share."""
