"""The JSON Schema of a task's answer: what it may cost, and the validator made of it.

A schema comes from outside, so nothing here compiles one whose cost is not bounded.
"""
