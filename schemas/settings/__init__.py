"""The configuration: its sources, the kinds of its values, its frozen form.

Nothing here opens a connection or shows a secret.
"""
