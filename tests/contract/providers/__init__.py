"""Calls to LLM providers, and what agents share about them: routes and limits."""
