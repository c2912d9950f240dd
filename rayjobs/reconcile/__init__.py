"""The loops of runs: admission, attempts, logs."""
