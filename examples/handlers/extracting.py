"""Extracts figures in two stages: a report is split, and each line is a task of its own."""

from docllm import Context, GiveUpError


async def split(context: Context) -> dict[str, int]:
    """Order a follow-up for each line with a figure; hand on the report's title."""
    document = await context.document()
    if document is None:
        raise GiveUpError("an extraction needs an input")
    title, *lines = document.splitlines()
    figures = [line for line in lines if any(map(str.isdigit, line))]
    for number, line in enumerate(figures, 1):
        await context.follow(
            {
                "id": f"{context.task.key}/{number}",
                "type": "figure",
                "input": {"text": line},
                "prompt": "Name the figure and its unit: {document}",
                "metadata": {"title": title},
            }
        )
    return {"figures": len(figures)}


async def figure(context: Context) -> dict[str, object]:
    """Return the figure of one line, with the title that the first stage handed on."""
    line = await context.document()
    prompt = (context.prompt or "{document}").replace("{document}", line or "")
    messages = [{"role": "user", "content": prompt}]
    answer = await context.complete({"model": context.model, "messages": messages})
    return {"title": (context.task.metadata or {}).get("title"), "figure": answer.text}
