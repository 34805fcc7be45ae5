"""Repairs of tasks that lost their agent or their record, as SQL.

The rows tell what is wrong, so any agent of the group may do a repair, and twice does no harm.
"""
