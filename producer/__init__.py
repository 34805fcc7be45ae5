"""Puts tasks on topics. Imports schemas, never agent."""
