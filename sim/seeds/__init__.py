"""Paired-seed statistics of finished training runs."""
