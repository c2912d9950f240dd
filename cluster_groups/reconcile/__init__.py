"""The loops of clusters: each to what was asked of it, and its health."""
