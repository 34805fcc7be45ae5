"""Settings: precedence of sources, refusals and fallbacks."""

from pathlib import Path
from typing import Any

import pytest

from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.next_command import as_called
from docllm.schemas.settings.config import Config, Price, RouteConfig, Structured, TypeConfig
from docllm.schemas.settings.sources import OPENAI_URL, ledger_url, require_llm
from docllm.schemas.task.task_types import BUILT_IN
from tests.support.settings import MYSQL, fault, load


def test_without_anything_the_parts_are_embedded_and_no_llm_is_set(tmp_path: Path) -> None:
    """Without configuration, the files are in docllm-data and Config's defaults apply.

    The folder is in the current folder.
    """
    config = load(tmp_path)

    assert config == Config(data_dir=tmp_path / "docllm-data")
    assert ledger_url(config) == f"sqlite:///{tmp_path}/docllm-data/ledger.sqlite"


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    """The strongest source with a value wins; a flag of None was not given."""
    toml = "[agent]\nslots = 1\ndrain_timeout_s = 5\n[llm]\nmodel = 'file'"

    config = load(
        tmp_path,
        toml,
        {"agent.slots": 3, "llm.model": None},
        DOCLLM_SLOTS="2",
        DOCLLM_LLM_MODEL="environment",
    )

    assert (config.agent.slots, config.agent.drain_timeout_s, config.llm.model) == (
        3,
        5.0,
        "environment",
    )


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    """An empty variable counts as unset, because compose files pass on empty variables.

    It must not hide the file's value.
    """
    assert load(tmp_path, "[agent]\nslots = 7", DOCLLM_SLOTS="").agent.slots == 7


def test_the_whole_file_arrives(tmp_path: Path) -> None:
    """Every table of the file has its place in Config."""
    toml = """
        data_dir = "here"
        [kafka]
        bootstrap = "a:1,b:2"
        [kafka.client]
        "security.protocol" = "SASL_SSL"
        ssl.ca.location = "/ca.pem"
        "socket.keepalive.enable" = true
        "session.timeout.ms" = 10000
        [database]
        url = "mariadb://u:p%40@h:3307/docllm?ssl_ca=/ca.pem"
        [redis]
        url = "rediss://h"
        [llm]
        base_url = "http://localhost:8000/v1"
        api_key = "key"
        model = "m"
        timeout_s = 30
        context_tokens = 8_000
        [routes.large]
        context_tokens = 128_000
        structured = "json_object"
        [documents]
        roots = ["docs", "/data"]
        [retry]
        tiers = ["10s", "2m"]
        max_attempts = 7
        [prices."gpt-4.1"]
        input_per_mtok = 2
        output_per_mtok = 8.5
    """

    config = load(tmp_path, toml)

    assert config.kafka.client == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "socket.keepalive.enable": "true",
        "session.timeout.ms": "10000",
    }
    assert ledger_url(config) == "mysql+pymysql://u:p%40@h:3307/docllm?ssl_ca=/ca.pem"
    assert (config.data_dir, config.roots()) == (
        tmp_path / "here",
        (tmp_path / "docs", Path("/data")),
    )
    assert (config.retry_tiers, config.max_attempts) == (("10s", "2m"), 7)
    assert config.prices == {"gpt-4.1": Price(2, 8.5)}
    assert config.llm.context_tokens == 8_000
    large = RouteConfig(context_tokens=128_000, structured=Structured.JSON_OBJECT)
    assert config.routes == {"large": large}
    assert config.llm.api_key is not None
    assert (config.llm.api_key.reveal(), config.llm.timeout_s, config.embedded) == (
        "key",
        30.0,
        False,
    )


def test_types_of_task_arrive(tmp_path: Path) -> None:
    """A section's settings apply to its type, with defaults for the others.

    Lists may be texts, and names may have dots.
    """
    toml = """
        [types.invoice]
        handler = "package.invoices:extract"
        max_attempts = 3
        retry = ["OSError", "httpx.ReadTimeout"]
        give_up = "ValueError, KeyError"
        delay_s = 60
        [types."a.b"]
        max_attempts = 1
        [types.plain]
    """

    config = load(tmp_path, toml)

    assert config.known_types == BUILT_IN | {"invoice", "a.b", "plain"}
    # A row without a type is a document; no load writes one.
    assert [config.knows_type(name) for name in ("plain", "other", "")] == [True, False, True]
    assert config.types == {
        "plain": TypeConfig(),
        "invoice": TypeConfig(
            handler="package.invoices:extract",
            max_attempts=3,
            retry=("OSError", "httpx.ReadTimeout"),
            give_up=("ValueError", "KeyError"),
            delay_s=60.0,
        ),
        "a.b": TypeConfig(max_attempts=1),
    }
    assert [config.max_attempts_of(name) for name in ("invoice", "a.b", "document")] == [3, 1, 5]


def test_paths_of_the_file_start_from_its_folder(tmp_path: Path) -> None:
    """Relative paths in a file named by DOCLLM_CONFIG start from the file's folder."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "my.toml").write_text('data_dir = "data"')

    assert load(tmp_path, DOCLLM_CONFIG="etc/my.toml").data_dir == tmp_path / "etc" / "data"


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    """A named configuration file that cannot be read is an error, and no silent default."""
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        load(tmp_path, flags={"config": "none.toml"})


def test_a_file_that_is_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    """A file that is a broken link is refused.

    Without the file, a Kafka installation would be an embedded one, for example because of a
    missing mount.
    """
    (tmp_path / "docllm.toml").symlink_to(tmp_path / "gone" / "docllm.toml")

    with pytest.raises(ConfigError, match=r"docllm\.toml cannot be read: No such file"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (
            "[kafka]\nbootstap = 'x'",
            "docllm.toml line 2: kafka.bootstap is unknown; did you mean kafka.bootstrap?",
        ),
        ("[limits]\nrpm = 60", "rpm is unknown; a section needs a name, such as [limits.NAME]"),
        ("[llm]\nRPM = 60", "line 2: llm.RPM is unknown; did you mean llm.rpm?"),
        ("[llm]\nfallback = ['a']", "is unknown; did you mean routes.default.fallback?"),
        ("[llm]\nfallback_on = ['MONEY']", "did you mean routes.default.fallback_on?"),
        (
            "[agent]\nslots = 'many'",
            "docllm.toml line 2: agent.slots is wrong; write a whole number from 1 to 100000",
        ),
        (
            "[routes.fast]\nmodels = 'm'",
            "line 2: routes.fast.models is unknown; did you mean routes.fast.model",
        ),
        ("[routes.fast]", "line 1: routes.fast is empty; set one of base_url, api_key, model"),
        ("[tenants.a]", "line 1: tenants.a is empty; set one of weight, in_flight, or remove"),
        ('[tenants."*"]\nin_flight = 1', '[tenants."*"] is not a tenant that a line can have'),
        (
            "[agent]\npark_probe_s = 0",
            "agent.park_probe_s is wrong; write a number from 1 to 86400",
        ),
        (
            "[types.invoice]\nroute = 'fast'",
            "types.invoice.route names no route; known are: default; add its section",
        ),
        (f"[routes.{'x' * 65}]\nmodel = 'm'", "use at most 64 printable characters"),
        ("[types.invoice]\npromt = 'p'", "types.invoice.promt is unknown"),
        ('[types."bad name"]', '[types."bad name"] is not a type that a line can have'),
        ('[types."-a"]\nretry = []', '[types."-a"] is not a type that a line can have'),
        ("[kafka]\nclient = 'x'", "kafka.client is unknown"),
        (
            "[kafka.client]\n'enable.auto.commit' = true",
            "docllm.toml line 2: kafka.client.enable.auto.commit is wrong; docllm sets",
        ),
        ("[kafka.client]\n'group.id' = 'x'", "docllm sets this one itself"),
        ("[kafka.client]\ndebug = ['a']", "write a text, a number"),
        ("[prices.m]\ninput = 1", "prices.m.input is unknown"),
        ("[prices.m]\ninput_per_mtok = -1", "prices.m.input_per_mtok is wrong"),
        ("[documents]\nroots = 5", "write a list of paths"),
        ("[retry]\ntiers = ['5m', '30s']", "write rising durations"),
        ("[retry]\ntiers = ['soon']", "line 2: retry.tiers is wrong; write rising durations"),
        ("[llm]\nbase_url = 'localhost:8000'", "write an address"),
        ("[database]\nurl = 'postgresql://h/d'", "write mysql://"),
        ("[database]\nurl = 'mysql://u:p/w@h'", "name the database"),
        ("[redis]\nurl = 'h:6379'", "write redis://"),
        ("data_dir = ''", "data_dir is wrong; write a text"),
        ("[agent", "is not TOML"),
        (
            "[llm]\nbase_url = http://h/v1",
            '(at line 2, column 12); base_url is a text, write it in quotes: base_url = "..."',
        ),
        ("[llm]\ntimeout_s = 30s", "(at line 2, column 15); timeout_s is a text, write it in quo"),
        (
            "[llm]\nrequests_per_minute = 60",
            "llm.requests_per_minute is unknown; did you mean llm.rpm?",
        ),
        ("[llm]\nzzz = 60", "llm.zzz is unknown; [llm] has: "),
        ("[tenants.acme]\nrpm = 60", "tenants.acme.rpm is unknown; [tenants.acme] has: "),
        ("[lmm]\nmodel = 'm'", "lmm.model is unknown; did you mean llm.model?"),
        ("[inbox]\nredrive = 1", "inbox.redrive is wrong; write true or false, without quotes"),
        ("[inbox]\nmax_backlog = -1", "inbox.max_backlog is wrong"),
        ("[inbox]\nbacklog = 5", "inbox.backlog is unknown"),
        ("[routes.large]\ncontext_tokens = 1.5", "write a whole number from 1 to 1000000000"),
        (
            "[routes.r]\nstructured = 'json'",
            "routes.r.structured is wrong; write one of json_schema, json_object, none, in quotes",
        ),
        ("[llm]\ncharge = 'no'", "llm.charge is wrong; write one of max_then_refund, max_kept,"),
        (
            "[tenants.a]\nwieght = 1",
            "tenants.a.wieght is unknown; did you mean tenants.a.weight",
        ),
        # MariaDB takes both for one name, so a guard of one would stop the other.
        (
            "[routes.a]\nmodel = 'm'\n[routes.'a ']\nmodel = 'n'",
            "routes.'a ': use at most 64 printable characters for a route's name, no blank at its",
        ),
        ("[kafka]\nclients = 'x'", "kafka.clients is unknown; [kafka] has: bootstrap"),
    ],
)
def test_a_fault_names_its_place_and_the_right_form(tmp_path: Path, toml: str, words: str) -> None:
    """A fault names its place, the setting, and what to write."""
    assert words in fault(tmp_path, toml)


def test_a_wrong_name_meets_its_own_section_only(tmp_path: Path) -> None:
    """What its section has, the most alike first, and nothing of the fifty others."""
    first, second = fault(tmp_path, "[llm]\nkeyy = 'x'\n[agent]\nwrong = 1\n").splitlines()
    assert first.partition("[llm] has: ")[2].startswith("api_key, ")
    assert "in_flight" in first
    assert "agent." not in first
    assert "[agent] has: " in second


def test_a_wrong_word_for_a_truth_is_no_text(tmp_path: Path) -> None:
    """`True` wants no quotes, so no advice is better."""
    assert "quotes" not in fault(tmp_path, "[inbox]\nenabled = True")


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[agent]\nslots = " + "9" * 5000, "too long"),
        ("[agent]\nslots = " + "[" * 3000 + "]" * 3000, "too deeply"),
        (".".join("a" * 3000) + " = 1", "too deeply"),
        ('data_dir = "a\\u0000b"', "zero byte"),
        ('data_dir = "~nobody-of-that-name/x"', "no home folder"),
    ],
    ids=["digits", "lists", "dotted names", "zero byte", "home"],
)
def test_a_file_that_its_reader_does_not_expect_is_refused_as_any_other(
    tmp_path: Path, toml: str, words: str
) -> None:
    """An odd configuration file is a usage error, and no bug of ours."""
    assert words in fault(tmp_path, toml)


def test_a_configuration_file_below_an_unknown_home_is_refused(tmp_path: Path) -> None:
    """A configuration file below an unknown user's home is refused: its name is a setting too."""
    assert "no home folder" in fault(tmp_path, DOCLLM_CONFIG="~nobody-of-that-name/docllm.toml")


def test_an_unknown_variable_of_ours_is_an_error(tmp_path: Path) -> None:
    """An unknown DOCLLM_ variable is an error, except those of the test suite.

    A misspelt variable would silently leave its default.
    """
    assert fault(tmp_path, DOCLLM_SLOT="3", DOCLLM_TEST_CACHE="x") == (
        "DOCLLM_SLOT is unknown; did you mean DOCLLM_SLOTS?"
    )


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    """All faults are reported together, so that a person repairs the file once."""
    variables = {"DOCLLM_SLOTS": "x", "DOCLLM_NO": "1", "DOCLLM_KAFKA_BOOTSTRAP": "k:1"}
    faults = fault(tmp_path, "[llm]\nmodl = 'm'", {}, **variables).splitlines()

    assert [line.split(" ")[0] for line in faults] == [
        "DOCLLM_NO",
        "docllm.toml",
        "DOCLLM_SLOTS:",
        "Kafka",
    ]


@pytest.mark.parametrize(
    ("toml", "environ"),
    [
        ("[retention]\narchive = 'ftp://host/'\npurge = '30d'", {}),
        ("", MYSQL | {"DOCLLM_DATABASE_URL": "oracle://u:hunter2@h/d"}),
    ],
)
def test_a_wrong_value_is_not_also_a_missing_one(
    tmp_path: Path, toml: str, environ: dict[str, Any]
) -> None:
    """An archive or a ledger that cannot be read is one fault."""
    assert len(fault(tmp_path, toml, {}, **environ).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "usual", "other"),
    [
        ("enabled", "true", "false"),
        # Whoever can write to the topics could otherwise add to any batch, or replay any task.
        ("join_batches", "false", "true"),
        ("redrive", "false", "true"),
        ("max_backlog", "0", "5"),
    ],
)
def test_the_inbox_is_read_and_opens_nothing_unless_that_is_wanted(
    tmp_path: Path, name: str, usual: str, other: str
) -> None:
    """A group without settings reads its inbox, whatever its backlog."""
    shown = [
        str(getattr(load(tmp_path, f"[inbox]\n{line}\n").inbox, name)).lower()
        for line in ("", f"{name} = {other}")
    ]

    assert shown == [usual, other]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (None, None)),
        ({"OPENAI_API_KEY": "k"}, (OPENAI_URL, "k")),
        ({"OPENAI_API_KEY": "k\n"}, (OPENAI_URL, "k")),  # as a mounted file ends
        ({"DOCLLM_LLM_API_KEY": "k"}, (OPENAI_URL, "k")),
        ({"OPENAI_BASE_URL": "http://o/v1"}, ("http://o/v1", None)),
        ({"OPENAI_BASE_URL": "http://o/v1", "OPENAI_API_KEY": "k"}, ("http://o/v1", "k")),
        ({"DOCLLM_LLM_BASE_URL": "http://own/v1", "OPENAI_API_KEY": "k"}, ("http://own/v1", None)),
        ({"DOCLLM_LLM_BASE_URL": OPENAI_URL + "/", "OPENAI_API_KEY": "k"}, (OPENAI_URL + "/", "k")),
        ({"DOCLLM_LLM_API_KEY": "own", "OPENAI_API_KEY": "k"}, (OPENAI_URL, "own")),
    ],
)
def test_openai_variables_fill_missing_settings(
    tmp_path: Path, environ: dict[str, Any], expected: tuple[str, str]
) -> None:
    """A key alone means OpenAI's own address; OpenAI's key goes to no other provider."""
    llm = load(tmp_path, **environ).llm

    assert (llm.base_url, llm.api_key and llm.api_key.reveal()) == expected


@pytest.mark.parametrize("program", ["/usr/bin/docllm", "agent/__main__.py"])
def test_the_remarks_on_what_to_type_are_in_one_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """The column fits commands of `docllm`, which are shorter, too."""
    monkeypatch.setattr("sys.argv", [program])

    with pytest.raises(ConfigError) as refused:
        require_llm(load(tmp_path))

    lines = as_called(str(refused.value)).splitlines()[1:]
    assert len({line.index("  # ") for line in lines}) == 1


def test_a_missing_llm_is_reported_with_advice(tmp_path: Path) -> None:
    """Without a provider, the error has three lines to type, one of them the rehearsal."""
    with pytest.raises(ConfigError) as refused:
        require_llm(load(tmp_path))

    typed = [
        line.partition("#")[0].strip()
        for line in str(refused.value).splitlines()
        if line.startswith("  ")
    ]
    assert len(typed) == 3
    assert typed[2] == "docllm agent --rehearsal"
    for line in typed[:2]:
        environ: dict[str, Any] = dict(
            pair.split("=", 1) for pair in line.removeprefix("export ").split()
        )
        assert load(tmp_path, **environ).llm.model == "NAME", "a request without a model is refused"
    require_llm(load(tmp_path, OPENAI_API_KEY="k"))
