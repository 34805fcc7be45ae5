"""Texts from outside, such as documents and errors: decoded, contained, cleaned and packed.

Everything is pure, and nothing here knows what a text is about.
"""
