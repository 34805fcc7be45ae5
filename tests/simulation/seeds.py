"""Which seeds the tests run: as many as are asked for, from where one asks to begin or else new ones; and those that ever failed."""

import os
import secrets

NUMBER = int(os.environ.get("DOCLLM_TEST_SEEDS", "300"))
FIRST = int(os.environ.get("DOCLLM_TEST_FIRST_SEED", secrets.randbits(32)))

EVER_FAILED: dict[int, str] = {  # seed: what it showed
    71: "a replay of two people at once",
}
