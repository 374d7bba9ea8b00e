"""Whether stored advantages and group sizes fit what the trace says of itself."""
