"""Fault runs: whole programs on real servers, with faults by plan or a kill at a crash point.

The promises are in `tests/invariants`; here is what happens, and who saw it.
"""
