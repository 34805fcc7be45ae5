"""A server of the S3 protocol as one process: moto. Its buckets are in its memory.

A restart begins with no bucket.
"""

import http.client
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from tests.servers.process import Server

_TIMEOUT_S = 30.0
_SIGNED = (  # the server looks only whether a request is signed
    "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


class ObjectStore(Server):
    """One S3 server, which takes any credentials."""

    name = "object-store"

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the variables by which clients find the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "s3cret-of-tests",
            "AWS_REGION": "us-east-1",
        }

    def prepare(self) -> None:
        """Do nothing: the server has no files."""

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def ready(self) -> bool:
        """Return whether the server lists its buckets."""
        try:
            return self._ask("GET", "/")[0] == http.client.OK
        except OSError:
            return False

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self._require("PUT", f"/{name}")

    def put(self, bucket: str, key: str, raw: bytes) -> None:
        """Write an object, over an older one too."""
        self._require("PUT", f"/{bucket}/{quote(key)}", raw)

    def get(self, bucket: str, key: str) -> bytes:
        """Return the bytes of an object."""
        return self._require("GET", f"/{bucket}/{quote(key)}")

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object."""
        self._require("DELETE", f"/{bucket}/{quote(key)}")

    def _require(self, method: str, path: str, raw: bytes = b"") -> bytes:
        status, answer = self._ask(method, path, raw)
        assert status in {http.client.OK, http.client.NO_CONTENT}, (method, path, status)
        return answer

    def _ask(self, method: str, path: str, raw: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, raw, {"authorization": _SIGNED})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
