"""Plain functions from a frozen snapshot and a time to a plan with reasons."""
