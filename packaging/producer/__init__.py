"""`python -m producer` runs docllm's program of that name; its code is in `docllm.producer`."""
