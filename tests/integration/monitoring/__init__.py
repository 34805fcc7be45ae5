"""What watches a group: status, progress, metrics, health, alerts, traces."""
