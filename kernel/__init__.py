"""The shared floor: errors, ids, clock, states, database, leases, events and the reconcile loop. Knows no product noun."""
