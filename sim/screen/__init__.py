"""Which strategies are worth a live run."""
