"""Is a live run what was promoted? Its decisions, draws and deliveries, recomputed."""
