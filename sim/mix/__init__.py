"""What mixers would have drawn from a captured run."""
