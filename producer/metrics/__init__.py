"""Metrics of a whole group, in the form that Prometheus reads.

Names and labels are a contract with alerts and dashboards. Every label is of a closed set: nothing
that a task, a document or a provider says becomes one.
"""
