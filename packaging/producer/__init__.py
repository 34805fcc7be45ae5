"""`python -m producer` runs docllm's program of that name; its code is in `docllm.producer`."""

from pkgutil import extend_path

# A user's own folder of this name may have no `__init__`; its modules are found here too.
__path__ = extend_path(__path__, __name__)
