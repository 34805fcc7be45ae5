"""What `docllm check` looks at: servers, schema, topics, rights, the LLM.

They change nothing and show no secret.
"""
