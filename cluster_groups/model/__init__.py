"""The values of clusters, groups and quotas."""
