"""The SQL of dead letters: how they are selected, grouped, explained and reopened.

The statements that a replay itself runs are in `docllm.producer.replay`.
"""
