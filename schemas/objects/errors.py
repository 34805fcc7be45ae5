"""The failures of object stores, classified by what a person or a program must do next."""

import re
from enum import StrEnum
from typing import Self

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\"reason\": ?\"(\w{1,64})\"")
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"})
# Error codes of stores for a key that can never exist, such as a key that is too long.
_WRONG_NAME = frozenset({"KeyTooLongError", "KeyTooLong", "InvalidURI", "InvalidResourceName"})
_NO_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "169.254.170.2")
_DENIED = (401, 403)
_DENIED_KINDS = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_NOT_FOUND = 404
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
HTTP_VARIABLES = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}


class ObjectFault(StrEnum):
    """The kind of a failure."""

    MISSING = "missing"
    CHANGED = "changed"
    NO_BUCKET = "no bucket"
    DENIED = "denied"
    EXISTS = "exists"
    TOO_LARGE = "too large"
    WRONG_NAME = "wrong name"  # no such object can exist
    OUTAGE = "outage"  # temporary: a later try may succeed
    NOT_INSTALLED = "not installed"


class ObjectError(Exception):
    """An object, or a listing, that cannot be had; the text names it and holds no secret."""

    def __init__(self, fault: ObjectFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault

    @classmethod
    def of(cls, error: Exception, uri: str) -> Self:
        """Return what a failure of the library means for the object or the prefix `uri`."""
        fault, what = _meaning(type(error).__name__, error, str(error), uri.partition(":")[0])
        return cls(fault, f"{uri} {what}")


def _meaning(kind: str, error: Exception, text: str, scheme: str) -> tuple[ObjectFault, str]:
    match = _STATUS.search(text)
    status = int(match[1]) if match else 0
    code = next((name for names in _CODE.findall(text) for name in names if name), "")
    fault, what = _of_setup(text, scheme) or _of_object(kind, error, status, code)
    return fault, f"{what} (status {status}{f', {code}' if code else ''})" if status else what


def _of_setup(text: str, scheme: str) -> tuple[ObjectFault, str] | None:
    """Return the fix if the cause is a missing environment variable; otherwise an empty text."""
    if any(address in text for address in _NO_CREDENTIALS):
        return (
            ObjectFault.DENIED,
            f"needs credentials, and the environment has none: {_CREDENTIALS[scheme]}",
        )
    if "incorrectly configured region" in text:
        return ObjectFault.DENIED, "is in a bucket of another region; set AWS_REGION to that one"
    if "BadScheme" in text:
        variable = HTTP_VARIABLES[scheme]
        return ObjectFault.DENIED, f"is at a server with http://, which {variable}=true would allow"
    return None


def _of_object(kind: str, error: Exception, status: int, code: str) -> tuple[ObjectFault, str]:
    if code in _NO_BUCKET:
        return ObjectFault.NO_BUCKET, "is in a bucket that does not exist"
    if kind == "AlreadyExistsError":
        return ObjectFault.EXISTS, "exists already"
    if isinstance(error, FileNotFoundError) or status == _NOT_FOUND:
        return ObjectFault.MISSING, "does not exist"
    if kind in _DENIED_KINDS or status in _DENIED:
        return ObjectFault.DENIED, "is not allowed for the credentials in the environment"
    if isinstance(error, ValueError) or kind == "InvalidPathError" or code in _WRONG_NAME:
        return ObjectFault.WRONG_NAME, "is not a valid object name in this store"
    return (
        ObjectFault.OUTAGE,
        "cannot be read or written at the moment: its store does not answer correctly",
    )
