"""What developers run: installing, locking, and making the pages that come from the code.

Nothing here is part of the product, and the product imports nothing from here.
"""
