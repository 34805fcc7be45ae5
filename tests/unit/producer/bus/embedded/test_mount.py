"""The file system of the bus file: network file systems are refused."""

from pathlib import Path

import pytest

from docllm.producer.bus.embedded.mount import kind_of, refuse_network
from docllm.schemas.errors import ConfigError


def _mounts(folder: Path, kind: str) -> Path:
    table = folder / "mounts"
    table.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {folder.resolve()}/data {kind} rw 0 0\n")
    return table


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    """A data folder on a network file system is refused, with the setting that moves it."""
    with pytest.raises(ConfigError, match=f"{kind}.*DOCLLM_DATA_DIR"):
        refuse_network(tmp_path / "data" / "below", _mounts(tmp_path, kind))


def test_deepest_mount_decides(tmp_path: Path) -> None:
    """The deepest mount decides: a local disk inside a network mount is accepted.

    A folder beside it is refused.
    """
    table = _mounts(tmp_path, "nfs")
    table.write_text(table.read_text() + f"/dev/sdb {tmp_path.resolve()}/data/local ext4 rw 0 0\n")

    assert kind_of(tmp_path / "data" / "local" / "x", table) == "ext4"
    assert kind_of(tmp_path / "data" / "other", table) == "nfs"
    assert kind_of(tmp_path / "database", table) == "ext4"


def test_system_without_a_list_of_mounts_is_trusted(tmp_path: Path) -> None:
    """Without a list of mounts there is no ground to refuse a folder."""
    refuse_network(tmp_path, tmp_path / "absent")

    assert kind_of(tmp_path, tmp_path / "absent") is None
