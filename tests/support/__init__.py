"""What several folders of tests share: fakes, values and failures.

Nothing here starts a server.
"""
