"""Live: capture from verl, deliver a strategy, prove that it arrived, verify the run."""
