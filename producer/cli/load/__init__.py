"""The command `load`: its steps, its input, what it shows meanwhile, and what it answers.

Tasks are made in `producer/loading`; nothing here writes them.
"""
