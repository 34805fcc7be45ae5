"""Replays dead letters and quarantined records: plans, stores and applies them by pages.

It calls no LLM and changes nothing that its run did not select.
"""
