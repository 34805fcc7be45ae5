"""What `load` reads: task lines, documents, rejects files.

It asks no server; `docllm.producer.loading` decides what becomes of a line.
"""
