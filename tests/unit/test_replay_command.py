"""`replay` as a command: options that mean something else together than each for itself, or nothing at all."""

import pytest

from producer.__main__ import _parser


@pytest.mark.parametrize("rate", ["1e-13/s", "0.0001", "1e-320/s"])
def test_a_rate_of_less_than_one_an_hour_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Stored with a replay, it would stop each later one of the group, which goes on with this one first."""
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["replay", "--all", "--rate", rate])

    assert (ended.value.code, "less than one an hour" in capsys.readouterr().err) == (2, True)
