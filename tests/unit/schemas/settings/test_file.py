"""A file in the current folder is trusted only if nobody else could have put it there.

No message shows a value.
"""

import grp
import os
import pwd
from pathlib import Path

import pytest

from docllm.producer import __main__ as producer
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.catalog import NAMED_SETTINGS, SETTINGS
from docllm.schemas.settings.file import SettingFile
from tests.support.settings import NAMED, load

SENDS = "[llm]\nbase_url = 'http://theirs/v1'\n"


@pytest.fixture(autouse=True)
def _shared_group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files' group have other members, whoever runs the tests."""
    if "group" not in request.fixturenames:
        monkeypatch.setattr("docllm.schemas.settings.file._is_private", lambda _group: False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of this user alone with a configuration file."""
    (tmp_path / "docllm.toml").write_text(SENDS)
    (tmp_path / "docllm.toml").chmod(0o644)
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757])
def test_a_file_found_in_a_folder_that_others_may_write_is_refused(folder: Path, mode: int) -> None:
    """A file found in a folder that others may write to is refused.

    They could run code in the agent, by a type's handler, and get the keys.
    """
    folder.chmod(mode)

    with pytest.raises(
        ConfigError,
        match=rf"other users may write to {folder}; run: chmod go-w {folder}, or name .* "
        r"--config docllm\.toml",
    ):
        load(folder)


def test_a_found_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Nobody may ever write to it, and no signal but a kill would end the program."""
    tmp_path.chmod(0o755)
    os.mkfifo(tmp_path / "docllm.toml", 0o644)

    with pytest.raises(
        ConfigError, match=r"is not read: it is not a regular file; name the file if you trust it"
    ):
        load(tmp_path)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o622])
def test_a_found_file_that_others_may_write_is_refused(folder: Path, mode: int) -> None:
    """A found file that others may write to is refused, because they may have written it."""
    (folder / "docllm.toml").chmod(mode)

    with pytest.raises(
        ConfigError,
        match=r"other users may write to .*docllm\.toml; run: chmod go-w .*docllm\.toml, or name",
    ):
        load(folder)


@pytest.mark.parametrize(
    ("group", "trusted"),
    [
        (("ann", []), True),
        (("ann", ["ann"]), True),
        (("ann", ["ann", "bob"]), False),
        (("staff", []), False),
        (None, False),
    ],
)
def test_a_group_of_this_user_alone_may_write(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: tuple[str, list[str]] | None,
    *,
    trusted: bool,
) -> None:
    """A group with this user as its only member may write.

    Many systems give each user such a group with a umask of 002, so every file is writable by it.
    """
    folder.chmod(0o775)
    (folder / "docllm.toml").chmod(0o664)

    def find(number: int) -> grp.struct_group:
        if group is None:
            raise KeyError(number)
        return grp.struct_group((group[0], "x", number, group[1]))

    monkeypatch.setattr("docllm.schemas.settings.file.grp.getgrgid", find)
    monkeypatch.setattr(
        "docllm.schemas.settings.file.pwd.getpwuid",
        lambda user: pwd.struct_passwd(("ann", "x", user, 1, "", "/", "/bin/sh")),
    )

    if trusted:
        assert load(folder).llm.base_url == "http://theirs/v1"
    else:
        with pytest.raises(ConfigError, match="other users may write to"):
            load(folder)


def test_a_link_to_a_file_in_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """A link to a file in a folder that others may write to is refused: they could replace it."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o777)
    (tmp_path / "theirs" / "a.toml").write_text(SENDS)
    (tmp_path / "docllm.toml").symlink_to("theirs/a.toml")

    with pytest.raises(ConfigError, match=r"other users may write to .*theirs; run: chmod go-w"):
        load(tmp_path)


@pytest.mark.parametrize("place", ["folder", "file"])
def test_a_found_file_of_another_user_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A found file of another user is refused, for example in a foreign folder; root's is not."""
    usual_stat, usual_fstat, me = os.stat, os.fstat, os.geteuid()
    theirs = me + 1

    def owned(status: os.stat_result, by: int) -> os.stat_result:
        return os.stat_result((*status[:4], by, *status[5:10]))

    def let_own(user: int) -> None:
        monkeypatch.setattr(
            Path,
            "stat",
            lambda path, **_: owned(usual_stat(path), user if place == "folder" else me),
        )
        monkeypatch.setattr(
            os, "fstat", lambda handle: owned(usual_fstat(handle), user if place == "file" else me)
        )

    let_own(theirs)
    with pytest.raises(
        ConfigError,
        match=r"belongs to another user; name .*: --config docllm\.toml, or DOCLLM_CONFIG=docllm",
    ):
        SettingFile(folder / "docllm.toml", unnamed=True)
    let_own(0)
    assert SettingFile(folder / "docllm.toml", unnamed=True).values


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_a_file_that_is_named_is_trusted(folder: Path, how: str) -> None:
    """A named file is trusted, with its address and the key.

    Kubernetes mounts folders with 0777, and a person who names a file means it.
    """
    (folder / "docllm.toml").chmod(0o666)
    folder.chmod(0o777)

    config = (
        load(folder, "", NAMED, DOCLLM_LLM_API_KEY="k")
        if how == "flag"
        else load(folder, DOCLLM_CONFIG="docllm.toml", DOCLLM_LLM_API_KEY="k")
    )

    assert config.llm.api_key is not None
    assert (config.llm.base_url, config.llm.api_key.reveal()) == ("http://theirs/v1", "k")


def test_a_found_file_of_this_user_is_read(folder: Path) -> None:
    """A file and folder that others can at most read are accepted."""
    assert load(folder).llm.base_url == "http://theirs/v1"
    assert load(folder).file == folder / "docllm.toml"


def test_a_key_of_the_environment_is_not_sent_to_an_address_that_was_found(folder: Path) -> None:
    """A key of the environment is not sent to an address from a found file.

    `check` used to send it with its first call.
    """
    with pytest.raises(ConfigError) as refused:
        load(folder, DOCLLM_LLM_API_KEY="victimkey")

    message = str(refused.value)
    assert message.startswith(
        "docllm.toml line 2: the key of DOCLLM_LLM_API_KEY would be sent to this llm.base_url"
    )
    assert (
        "set DOCLLM_LLM_BASE_URL too, or name the file if you trust it: --config docllm.toml"
        in message
    )
    assert "victimkey" not in message


def test_a_key_goes_to_the_address_that_stands_beside_it(folder: Path) -> None:
    """A key goes to the address beside it, in the environment or the file.

    A file without an address changes nothing.
    """
    beside = load(folder, DOCLLM_LLM_API_KEY="k", DOCLLM_LLM_BASE_URL="http://mine/v1")
    (folder / "docllm.toml").write_text(f"{SENDS}api_key = 'theirs'\n")
    both = load(folder)
    (folder / "docllm.toml").write_text("[llm]\nmodel = 'm'\n")

    assert beside.llm.base_url == "http://mine/v1"
    assert both.llm.api_key is not None
    assert load(folder, DOCLLM_LLM_API_KEY="k").llm.base_url == "https://api.openai.com/v1"


def test_a_folder_that_is_not_trusted_ends_a_command_with_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An untrusted folder ends a command with 2 before anything is opened.

    With the file named, the command goes on.
    """
    folder.chmod(0o777)
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("DOCLLM_", "OPENAI_"))]:
        monkeypatch.delenv(name)

    assert producer.main(["status"]) == 2
    assert not (folder / "docllm-data").exists()
    assert "chmod go-w" in capsys.readouterr().err
    assert producer.main(["status", "--config", "docllm.toml"]) == 0


# The odd letter makes some libraries quote the text in their errors.
CANARY = "sk-canary\u2100secret"
WRONG = [
    CANARY,
    f"{CANARY}://u:{CANARY}@h",
    f"http://{CANARY}/v1",
    f"mysql://u:{CANARY}/@h",
    [CANARY],
    {"a": CANARY},
    True,
    -1,
    f"30s,{CANARY}",
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_no_fault_shows_a_value(tmp_path: Path, value: object) -> None:
    """No fault shows a value, which may be a misplaced password.

    `retry.tiers` used to quote it, as did an address with an impossible host.
    """
    named = {f"{section}.x.{name}" for section, names in NAMED_SETTINGS.items() for name in names}
    messages = []
    for name in sorted({*SETTINGS, *named, "kafka.client.debug", "kafka.client.nothing"}):
        try:
            load(tmp_path, "", {name: value})
        except ConfigError as fault:
            messages.append(str(fault))

    assert messages
    assert [fault for fault in messages if "canary" in fault] == []
