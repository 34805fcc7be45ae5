"""The owner: the number of one claim, with the id of the claiming agent in its high bits."""

OWNER_BITS = 24  # the low bits, which number the claims of one agent


def owner_of(agent_id: int, claim: int) -> int:
    """Return the owner of an agent's claim with this number."""
    return agent_id << OWNER_BITS | claim


def agent_of(owner: int) -> int:
    """Return the id of the agent whose claim this is."""
    return owner >> OWNER_BITS
