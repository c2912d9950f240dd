"""The values of jobs, runs and attempts."""
