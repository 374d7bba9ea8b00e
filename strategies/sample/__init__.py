"""Rules that say which domains the next batches come from, one a file."""
