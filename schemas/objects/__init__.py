"""Objects in S3, Google Cloud Storage and Azure Blob Storage, by obstore, and stores of results.

Nothing else imports obstore. It is imported at the first use, since it is an extra. Credentials and
addresses of servers come from the environment as obstore reads it, never from a task or a setting.
The library's error texts are never shown, because they may contain signed URLs.
"""
