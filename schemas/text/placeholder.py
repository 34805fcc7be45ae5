"""The place of the document in a prompt, as docllm and as Jinja write it."""

import re

PLACEHOLDER = "{document}"
_OF_TEMPLATES = re.compile(r"\{\{[ \t]{0,9}+document[ \t]{0,9}+\}\}")


def with_places(prompt: str) -> str:
    """Return a prompt with `{document}` for each `{{document}}` and `{{ document }}`.

    Whoever writes these means the document, and not the document in braces.
    """
    return _OF_TEMPLATES.sub(PLACEHOLDER, prompt)
