"""The catalogue of settings: meanings for people, and the defaults of the program."""

from docllm.schemas.settings.catalog import NAMED_SETTINGS, SETTINGS
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.quota import LIMIT_NAMES, NO_LIMITS


def shown(value: object) -> str:
    """Return a default as the page of settings shows it."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_each_default_is_that_of_the_program() -> None:
    """A page that shows another default than the program uses would mislead."""
    config = Config()
    places = {
        "data_dir": config.data_dir,
        "database.url": config.database_url,
        "redis.url": config.redis_url,
        "documents.roots": config.document_roots,
        "documents.allow": config.document_allow,
        "documents.private": config.document_private,
        "documents.kept_mb": config.document_kept_mb,
        "retry.tiers": config.retry_tiers,
        "retry.max_attempts": config.max_attempts,
        "http.token": config.http_token,
        "log.format": config.log_format,
        "retention.purge": config.retention.purge_after_s,
        **{f"llm.{name}": getattr(NO_LIMITS, name) for name in LIMIT_NAMES},
    }
    for name, setting in SETTINGS.items():
        section, _, part = name.partition(".")
        value = places[name] if name in places else getattr(getattr(config, section), part)
        assert setting.default == shown(value), name


def test_each_setting_has_a_meaning() -> None:
    """The page of settings leaves no meaning open, and each fits a table's cell."""
    for meaning in (
        *(setting.meaning for setting in SETTINGS.values()),
        *(setting.meaning for parts in NAMED_SETTINGS.values() for setting in parts.values()),
    ):
        assert meaning
        assert "|" not in meaning
        assert "\n" not in meaning
