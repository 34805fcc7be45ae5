"""An owner tells which agent claims, and no two claims have the same one."""

from docllm.schemas.task.owner import OWNER_BITS, agent_of, owner_of


def test_an_owner_tells_its_agent_whatever_the_number_of_the_claim() -> None:
    """The number of the claim stays in the low bits."""
    claims = (0, 1, (1 << OWNER_BITS) - 1)
    owners = {owner_of(agent_id, claim): agent_id for agent_id in (1, 2, 7) for claim in claims}
    assert len(owners) == 3 * len(claims)
    assert {owner: agent_of(owner) for owner in owners} == owners
