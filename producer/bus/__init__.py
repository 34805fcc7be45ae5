"""The embedded bus: topics, partitions, offsets and consumer groups in one SQLite file, for the agents of one machine.

`file` opens it, `topics` makes and trims topics, `log` appends and reads records, `group` shares partitions among members.
Callers own the threads; nothing in here starts one.
"""
