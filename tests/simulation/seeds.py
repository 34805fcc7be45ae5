"""Which seeds the tests run: new ones each time, as many as are asked for, and those that ever failed."""

import os
import time

NUMBER = int(os.environ.get("DOCLLM_TEST_SEEDS", "300"))
FIRST = int(os.environ.get("DOCLLM_TEST_FIRST_SEED", "0")) or int(time.time()) // 60 * 1000  # no two minutes have a seed in common

EVER_FAILED: dict[int, str] = {}  # seed: what it showed
