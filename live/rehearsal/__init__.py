"""A rehearsal: the real verl trainer on a CPU with a tiny model and verifiable tasks."""
