"""Runs inside the runtime-env agent of every Ray node that Muster makes: mounts volumes, fetches large packages.

It also travels to nodes without the rest of Muster: the standard library and Ray's own plugin base is all it imports,
and Python 3.9 has to do.
"""
