"""Routes and breakers: which calls may start, and what provider failures mean for tasks.

The modules are pure, with time passed in, except `probe_sender` (a cheap call) and `sharing`
(Redis). Nothing here wraps, delays or repeats a call, or sends a task to a tier.
"""

from docllm.agent.routes.names import DEFAULT, RouteNames
from docllm.agent.routes.plan import RoutePlan
from docllm.agent.routes.route import RouteCall
from docllm.agent.routes.router import Router

__all__ = ["DEFAULT", "RouteCall", "RouteNames", "RoutePlan", "Router"]
