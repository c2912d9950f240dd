"""The real decisions over a simulated world: how long would who wait with these clusters, quotas and work.

For people who plan capacity (`muster simulate`), and for tests of what decisions add up to over time.
"""
