"""How Muster talks to a cluster about jobs."""
