"""Kustomize, which renders the manifests for Kubernetes: kubectl has it, or Go builds it."""

import os
import shutil
import subprocess
from pathlib import Path

import orjson

from tests.servers.cache import appears, cache
from tests.servers.process import ServerMissingError

VERSION = "v5.7.1"
MODULE = f"sigs.k8s.io/kustomize/kustomize/v5@{VERSION}"


def command() -> list[str]:
    """Return the command that renders the folder which is its next argument.

    Raises ServerMissingError if it is not on this machine.
    """
    built = _folder() / "kustomize"
    if built.exists():
        return [str(built), "build"]
    kubectl = shutil.which("kubectl")
    if kubectl and _knows_components(kubectl):
        return [kubectl, "kustomize"]
    raise ServerMissingError("kustomize is not installed; run: python -m tests.servers install")


def fetch() -> None:
    """Build kustomize if there is none.

    Raises ServerMissingError without Go, or if the build fails.
    """
    try:
        command()
    except ServerMissingError:
        pass
    else:
        return
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if go is None:
        raise ServerMissingError("kustomize is built by Go 1.22 or newer, which is not installed")
    with appears(_folder()) as folder:
        environ = os.environ | {"GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"}
        try:
            subprocess.run([go, "install", MODULE], env=environ, check=True)
        except subprocess.CalledProcessError as error:
            raise ServerMissingError(f"kustomize could not be built: {error}") from error


def _folder() -> Path:
    return cache() / f"kustomize-{VERSION}"


def _knows_components(kubectl: str) -> bool:
    """Return whether this kubectl is not as old as that of Debian, which knows no components."""
    shown = [kubectl, "version", "--client", "--output=json"]
    done = subprocess.run(shown, capture_output=True, check=False)
    try:
        return str(orjson.loads(done.stdout)["kustomizeVersion"]).startswith("v5.")
    except (ValueError, KeyError):
        return False
