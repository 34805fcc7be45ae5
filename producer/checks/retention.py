"""The check that reports the retention and finds archived batches that reappeared.

After a backup was restored, the ledger may have batches that an archive has already.
"""

from docllm.producer.app import CHECK_TRIES, is_ledger_missing, opened_ledger
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.retention.archive_search import manifests, require_folder
from docllm.producer.retention.archiver import folder_name
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.objects.errors import ObjectError, ObjectFault
from docllm.schemas.settings.config import Config

_MAX_NAMED = 5
_PASSING = frozenset({ObjectFault.OUTAGE, ObjectFault.DENIED})


async def description(config: Config, group: str) -> str:
    """Return what agents archive and delete, and when.

    Raises ConfigError if the folder of archives cannot be used, and UnreachableError, which is no
    failure, if its store is away or if a batch is archived there and alive here.
    """
    to = config.retention.archive or ""
    try:
        back = await _back(config, group, to)
    except ObjectError as error:
        kind = UnreachableError if error.fault in _PASSING else ConfigError
        raise kind(str(error)) from None
    if back:
        names = ", ".join(shown(name) for name in back[:_MAX_NAMED])
        more_names = f" and {len(back) - _MAX_NAMED} more" if len(back) > _MAX_NAMED else ""
        raise UnreachableError(
            f"these batches have an archive at {to} and are not archived here, as after a backup "
            f"was restored: {names}{more_names}; before agents run and pay for them again, run for "
            f"each: docllm archive --adopt --batch NAME --group {group}"
        )
    return f"archives to {to}{_ages(config)}"


def _ages(config: Config) -> str:
    settings = config.retention
    ages_s = {
        "inputs": settings.inputs_after_s,
        "results": settings.results_after_s,
        "all rows": settings.rows_after_s,
    }
    given = [f"{what} after {age_s:,} s" for what, age_s in ages_s.items() if age_s is not None]
    deletes = f"deletes {', '.join(given)}" if given else "deletes nothing"
    return f" after {settings.archive_after_s:,} s without a change; {deletes}"


async def _back(config: Config, group: str, to: str) -> list[str]:
    """Return the batches with an archive below `to` that the ledger has alive, or not at all."""
    require_folder(to)
    if is_ledger_missing(config):
        return []
    async with opened_ledger(config, tries=CHECK_TRIES) as parts:
        archived = await parts.transactions.read(archive_rows.names, group, archived=True)
        alive = await parts.transactions.read(archive_rows.names, group, archived=False)
        put_away = {folder_name(name, parts.ledger_id) for name in archived}
        put_away -= {folder_name(name, parts.ledger_id) for name in alive}
        stored = await manifests(to, parts.ledger_id, group, lambda folder: folder not in put_away)
        # An `archive` that was killed after its manifest is no sign of a restored backup.
        begun = await parts.transactions.read(archive_rows.known_uris, group)
    back = (own.batch for uri, own in stored if own.batch not in archived and uri not in begun)
    return list(dict.fromkeys(back))
