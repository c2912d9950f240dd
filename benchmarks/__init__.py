"""The measures that say whether Muster is fast enough, each beside Ray alone on the same cluster where Ray can do it.

`make bench` runs all of them; `python -m benchmarks latency pages` some. Everything they start they end, by pid.
"""
