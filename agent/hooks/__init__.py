"""Hooks, a user's functions that run after an attempt has ended: loaded, run, given up.

It settles no task. The SQL is in `docllm.agent.ledger.hook_runs` and
`docllm.producer.ledger.hook_orders`.
"""
