"""The version of docllm, in one place."""

VERSION = "0.1.0"
