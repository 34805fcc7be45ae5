"""Text from PDF, DOCX, HTML and other encodings, made in processes with limits.

A document may attack the library that parses it. So the agent itself parses no documents: child
processes convert them one at a time. If a process dies, only its present document fails.
"""
