"""What a server's refusal says: its class, by status, codes and wording, in any shape of a body.

Agents and `check` read refusals in here alike. No network, no settings, no effect on a route.
"""
