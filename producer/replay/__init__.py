"""Replays dead letters and quarantined records: plan, store, apply, page by page.

It makes no call to an LLM and changes nothing that its run did not select.
"""
