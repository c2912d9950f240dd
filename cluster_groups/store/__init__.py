"""Queries, and the way between rows and values. Nothing here decides or commits."""
