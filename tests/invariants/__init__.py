"""The promises P1 to P9, as functions of the evidence of a run.

Simulations, integration runs and fault runs use them alike; nothing here starts a run.
"""
