"""The producer: loads tasks, shows their state, exports results; also buses, SQL, metrics.

It imports schemas and never agent.
"""

if __name__ == "producer":
    from pathlib import Path

    # In a checkout this folder is found under the program's name too. It then holds what the
    # installed program holds, so that no module is loaded under two names.
    __path__ = [str(Path(__file__).resolve().parents[1] / "packaging/producer")]
