"""Strategies: scorers, actuators, the named catalog, and the checks that all of them pass."""
