"""What a document's bytes are: its kind, told by content, and its encoding.

Loads and agents use it alike. Nothing here parses a document; agents do that in processes of their
own.
"""
