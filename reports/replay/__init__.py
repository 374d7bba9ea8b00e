"""A replay's page, with captured text, and pictures of its sweeps."""
