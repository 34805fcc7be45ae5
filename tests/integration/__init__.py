"""Whole programs as child processes, on the embedded parts and on Kafka, MariaDB and Redis."""
