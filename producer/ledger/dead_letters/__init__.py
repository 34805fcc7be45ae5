"""The SQL of dead letters: how they are selected, grouped, explained and counted in replays.

The statements that a replay itself runs are in `producer.replay`.
"""
