"""The code that rides along to a Ray cluster: it starts the user's command and leaves no process behind.

Standard library only, Python 3.9 or newer. It is imported there as `muster_runner`: relative imports only, and few,
for a quick start.
"""
