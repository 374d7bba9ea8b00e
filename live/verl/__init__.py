"""What ties dfsim to verl 0.9.1."""
