"""The tests of `producer check`: servers, schema, topics, rights, the LLM.

They change nothing and show no secret.
"""
