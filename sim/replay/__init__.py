"""What strategies would have done to a captured run: the one loop, and what it finds."""
