"""Kafka, databases and Redis that fail, lose data, are secured or refuse a right."""
