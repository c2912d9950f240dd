"""The shared floor: errors, ids, states, database, leases, events, the reconcile loop. Knows no product noun."""
