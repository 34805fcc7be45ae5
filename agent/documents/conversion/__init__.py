"""Text from PDF, DOCX, HTML and other encodings, made in processes with limits.

Whoever writes a document can aim at the library that reads it. So the agent parses none: a process
converts one document after another, and only that document fails when the process dies of it.
"""
