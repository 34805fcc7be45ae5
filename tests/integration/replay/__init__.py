"""Dead letters and work that comes back: replays, other people's tools, drills after a loss."""
