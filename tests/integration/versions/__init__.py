"""Packages, migrations, and programs of several versions beside each other."""
