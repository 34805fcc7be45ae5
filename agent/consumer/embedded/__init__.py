"""The consumer on the embedded bus, for the agents of one machine.

It reads through `producer.bus.embedded` and has no SQL of its own.
"""
