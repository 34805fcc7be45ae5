"""`python -m agent`, for those who call docllm by its modules."""

import sys

from docllm.agent.__main__ import start

if __name__ == "__main__":
    del sys.modules["agent"]  # a handler that imports `agent` means the one beside it
    start(sys.argv[1:])
