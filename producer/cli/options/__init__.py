"""The arguments of commands: how a command line is read, and what each option may be.

It imports no library, so that help is fast, and it runs no command.
"""
