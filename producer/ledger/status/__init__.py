"""What screens and exporters read of a group: its batches, agents, releases, progress and sums.

It changes nothing, and no query here grows with the number of tasks.
"""
