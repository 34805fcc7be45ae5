"""A port for spans that keeps them."""

from docllm.producer.tracing.spans import Span


class KeptSpans:
    """Keeps all spans."""

    def __init__(self) -> None:
        self.kept: list[Span] = []
        self.dropped = 0

    def emit(self, span: Span) -> None:
        self.kept.append(span)

    def close(self) -> None:
        pass
