"""The real verl trainer on a CPU: a tiny model, a verifiable task, registrations with verl."""
