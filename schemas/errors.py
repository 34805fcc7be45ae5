"""The errors of docllm, by who has to act; each carries the exit code of the program.

    DocllmError            5  a bug of ours
    ├── InputError         1  some of the input was bad; the good part is done
    ├── ConfigError        2  usage or configuration: the person at the keyboard
    ├── UnreachableError   3  a server cannot be reached: the operator
    │   └── DeniedError    3  a server refuses a right that docllm needs: the operator
    └── UnsafeStateError   4  schema, topics or ledger are not what they must be: the operator

A message says what is wrong and what to do next. It never holds a secret.
"""

from docllm.schemas.codes import Code


class DocllmError(Exception):
    """A fault of docllm itself, and the base of all its errors."""

    exit_code = 5
    code = Code.INTERNAL_ERROR


class InputError(DocllmError):
    """Some of the input was bad."""

    exit_code = 1
    code = Code.INPUT_BAD


class ConfigError(DocllmError):
    """An option, a variable or the configuration file is wrong."""

    exit_code = 2
    code = Code.SETTINGS_WRONG


class UnreachableError(DocllmError):
    """A server does not answer, or refuses the login: then `may_pass` is false."""

    exit_code = 3
    code = Code.SERVER_AWAY

    def __init__(self, text: str, *, may_pass: bool = True) -> None:
        super().__init__(text)
        self.may_pass = may_pass


class DeniedError(UnreachableError):
    """A server accepts the login but refuses a right; retrying does not help."""

    code = Code.SERVER_DENIES

    def __init__(self, text: str) -> None:
        super().__init__(text, may_pass=False)


class UnsafeStateError(DocllmError):
    """Continuing would break a promise: another schema, other topics, another ledger.

    `may_pass`: a command that is usual before the first start, such as `migrate`, mends it.
    """

    exit_code = 4
    code = Code.STATE_UNSAFE

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass
