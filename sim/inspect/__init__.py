"""What a trace holds, and what is odd about it."""
