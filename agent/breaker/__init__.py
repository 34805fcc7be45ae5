"""Routes and their breakers: which calls may start, and what the failures of a provider mean for the tasks that met them.

Everything here is pure, time passed in, but for `circuit` (pybreaker), `prober` (a cheap call), `sharing` and `redis_share` (Redis).
A call is never wrapped, held or repeated here; nothing is sent to a tier.
"""

from agent.breaker.naming import DEFAULT, Names, route_of
from agent.breaker.route import Ticket
from agent.breaker.routes import Routes

__all__ = ["DEFAULT", "Names", "Routes", "Ticket", "route_of"]
