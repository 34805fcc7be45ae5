"""The configuration: where it comes from, what its values may be, its frozen form.

It opens no connection and shows no secret.
"""
