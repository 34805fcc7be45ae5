"""From a line to its record: load, inbox, orders to publish, relay and sweep."""
