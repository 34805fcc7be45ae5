"""Refuses lines by what a load knows beside the line itself: types, routes, prompts, documents.

Each module is one check. The line itself is checked in `docllm.schemas.task.line.parsing`.
"""
