"""The product's own agents on virtual time: a seed decides every order, delay and fault.

Only the world around the agents is replaced, never a part of them.
"""
