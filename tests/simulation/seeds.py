"""Which seeds the tests run: from 1, or where one asks to begin, as many as are asked for; and those that ever failed."""

import os

NUMBER = int(os.environ.get("DOCLLM_TEST_SEEDS", "300"))
FIRST = int(os.environ.get("DOCLLM_TEST_FIRST_SEED", "1"))

EVER_FAILED: dict[int, str] = {}  # seed: what it showed
