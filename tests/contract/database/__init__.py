"""The database itself: its errors, outages, rights and settings, and how much a query reads."""
