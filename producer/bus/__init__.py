"""The embedded bus for the agents of one machine: Kafka-like topics in one SQLite file.

The file holds topics, partitions, offsets and consumer groups. `file` opens it, `topics` makes and
trims topics, `log` appends and reads records, `group` shares partitions among members. Callers own
the threads; no module in here starts one.
"""
