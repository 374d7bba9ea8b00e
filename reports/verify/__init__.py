"""A verification, as a page."""
