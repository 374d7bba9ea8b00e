"""What a trace holds, as a page."""
