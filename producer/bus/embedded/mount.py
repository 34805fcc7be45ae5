"""Finds out what kind of file system a folder is on.

SQLite's WAL needs shared memory, which no network file system gives.
"""

from pathlib import Path

from docllm.schemas.errors import ConfigError

_MOUNTS = Path("/proc/mounts")
_NETWORK = frozenset(
    "9p afs beegfs ceph cifs coda davfs fuse.ceph fuse.glusterfs fuse.s3fs fuse.sshfs gfs2 "
    "glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs smb3 smbfs virtiofs".split()
)


def refuse_network(folder: Path, mounts: Path = _MOUNTS) -> None:
    """Raise ConfigError when `folder` is on a network file system.

    A system that lists no mounts is trusted.
    """
    kind = kind_of(folder, mounts)
    if kind in _NETWORK:
        raise ConfigError(
            f"{folder} is on a {kind} file system, where SQLite loses data; "
            "set DOCLLM_DATA_DIR to a local disk, or use Kafka and MySQL"
        )


def kind_of(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the file system type of the mount that holds `folder`, None if it is unknown."""
    if not mounts.exists():
        return None
    resolved = folder.resolve()
    deepest, kind = -1, None
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, mount_kind, *_ = line.split(" ")
        path = Path(point.replace("\\040", " "))
        # Later mounts hide earlier ones at the same place.
        if resolved.is_relative_to(path) and len(path.parts) >= deepest:
            deepest, kind = len(path.parts), mount_kind
    return kind
