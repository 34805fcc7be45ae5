"""The topics as they should be, and the adapters of the port TopicAdmin."""
