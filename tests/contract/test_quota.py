"""What the agents that share an account are granted: the same rules in memory and in Redis."""

from dataclasses import replace

from agent.quota.account import QuotaAccount
from agent.quota.ledger import Ask, Charge, QuotaRequest, Refund
from schemas.settings.quota import QuotaLimits

ASK = Ask(cost=Charge(tokens_in=800, tokens_out=200))


def test_a_new_account_is_empty_and_fills_with_time() -> None:
    """Nothing is granted at once; after half a second there is half a second of the rate."""
    account = QuotaAccount()
    request = QuotaRequest(
        key="k", limits=QuotaLimits(rpm=1200, tpm=1_200_000), sequence=1, asks=(ASK,) * 20
    )
    assert sum(account.exchange("a", request, 0).granted) in {0, 1}

    answer = account.exchange("a", replace(request, sequence=2, refund=Refund()), 500)

    assert 8 <= sum(answer.granted) <= 10
    assert answer.binding in {"rpm", "tpm"}
