"""The check that says what agents archive and delete, and whether they can reach the archives."""

from docllm.producer.checks import object_stores
from docllm.producer.retention.archiver import require_folder
from docllm.schemas.objects.address import is_object_uri
from docllm.schemas.settings.config import RetentionConfig


async def description(settings: RetentionConfig, to: str) -> str:
    """Return what agents do with old batches, and when. `to` is where their archives go.

    Raises ConfigError if archives cannot lie there, and UnreachableError, which is no failure, if
    their store is away.
    """
    require_folder(to)
    if is_object_uri(to):
        await object_stores.listed(to)
    purges = "deletes nothing"
    if settings.purge_after_s is not None:
        purges = "then deletes their rows"
    return f"archives to {to} after {settings.archive_after_s:,} s without a change; {purges}"
