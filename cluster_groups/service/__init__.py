"""Use cases of clusters, cluster groups and resource pools. They flush into the given session and never commit."""
