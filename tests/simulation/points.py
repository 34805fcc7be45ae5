"""The product's crash points between two durable effects, read from its source.

A run kills programs there.
"""

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_REACH = re.compile(r'\breach\("([a-z_.]+)"\)')
# Points of programs that no run has, or that come before a run begins, or only on a stage.
_OTHERS = ("migrate.", "from_topic.", "commit.", "trim.", "topics.", "settle.ids_taken")


def _points() -> list[str]:
    sources = [
        path for folder in ("agent", "producer") for path in sorted((_ROOT / folder).rglob("*.py"))
    ]
    points = {point for path in sources for point in _REACH.findall(path.read_text())}
    return sorted(point for point in points if not point.startswith(_OTHERS))


POINTS = _points()
