"""The consumer on the embedded bus, for the agents of one machine.

It reads through `docllm.producer.bus.embedded` and has no SQL of its own.
"""
