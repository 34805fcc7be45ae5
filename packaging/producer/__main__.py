"""`python -m producer`, for those who call docllm by its modules."""

import sys

from docllm.producer.__main__ import start

if __name__ == "__main__":
    start(sys.argv[1:])
