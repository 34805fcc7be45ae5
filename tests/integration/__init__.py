"""Tests of whole programs, on the embedded parts and on Kafka, MariaDB and Redis.

The programs run as child processes.
"""
