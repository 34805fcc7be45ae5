"""The product's own agents on virtual time.

A seed decides every order, delay and fault, and repeats the same run.
"""
