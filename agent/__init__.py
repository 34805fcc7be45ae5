"""The agent: takes tasks from topics, calls the LLM, and settles the outcomes.

It imports producer and schemas, and nothing imports it.
"""

if __name__ == "agent":
    from pathlib import Path

    # In a checkout this folder is found under the program's name too. It then holds what the
    # installed program holds, so that no module is loaded under two names.
    __path__ = [str(Path(__file__).resolve().parents[1] / "packaging/agent")]
