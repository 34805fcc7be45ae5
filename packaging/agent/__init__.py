"""`python -m agent` runs docllm's program of that name; its code is in `docllm.agent`."""
