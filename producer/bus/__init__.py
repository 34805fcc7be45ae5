"""The buses: Kafka and the embedded one, behind the ports Publisher and TopicAdmin.

They carry bytes and know nothing of tasks.
"""
