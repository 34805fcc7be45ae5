"""Runs `docllm exporter`, which reads its group each second and may name another version.

Tested by tests/integration/monitoring/test_alerts.py.
"""

import os
import sys

from docllm.producer.__main__ import start
from docllm.producer.metrics import exporter
from docllm.schemas.version import VERSION

if __name__ == "__main__":
    vars(exporter)["EVERY_S"] = 1.0
    vars(exporter)["VERSION"] = os.environ.get("EXPORTER_VERSION", VERSION)
    start(sys.argv[1:])
