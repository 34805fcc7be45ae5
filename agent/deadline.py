"""How the time of a claim is divided.

A claim's hard deadline is the longest time limit of a route plus DEADLINE_MARGIN_S: after it,
other agents may take the task even while this agent lives. The attempt has the time until
SETTLE_MARGIN_S before the hard deadline: no call may last longer, so that its outcome can still be
settled. The handler has HANDLER_GRACE_S more than its calls: a call reaches its own limit first,
so that a hanging provider is not taken for a hanging handler.
"""

DEADLINE_MARGIN_S = 60.0
SETTLE_MARGIN_S = 30.0
HANDLER_GRACE_S = 5.0
