"""The Ray dashboards of clusters behind Muster's own sign-in: only looked at, except by operators in a few things."""
