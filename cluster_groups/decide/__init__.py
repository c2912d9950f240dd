"""Plain functions from a frozen view and a time to a verdict with its reasons."""
