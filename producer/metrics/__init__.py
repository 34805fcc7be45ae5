"""Metrics of a whole group, in the form that Prometheus reads.

Names and labels are a contract with alerts and dashboards. All label values come from closed sets,
never from a task, a document or a provider.
"""
