"""dfsim inside a training run: what it hands to a trainer."""
