"""Broken inputs of every kind, the process that meets them, and the judge of what it did: see `benchmarks/fuzz.py`."""
