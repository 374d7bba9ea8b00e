"""Judging finished runs: paired seeds, corrected tests, what they could have found."""
