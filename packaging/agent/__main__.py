"""`python -m agent`, for those who call docllm by its modules."""

import sys

from docllm.agent.__main__ import start

if __name__ == "__main__":
    start(sys.argv[1:])
