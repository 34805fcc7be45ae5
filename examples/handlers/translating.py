"""Translates each report, and says which words of the glossary its translation lacks."""

from docllm import Context, GiveUpError

GLOSSARY = {"branch": "Filiale", "sales": "Umsatz"}


async def translate(context: Context) -> dict[str, object]:
    """Return the translation, and the terms that a person should look at."""
    document = await context.document()
    if document is None:
        raise GiveUpError("a translation needs an input")
    terms = {word: term for word, term in GLOSSARY.items() if word in document.lower()}
    glossary = ", ".join(f"{word} = {term}" for word, term in terms.items())
    answer = await context.complete(
        {
            "model": context.model,
            "messages": [
                {"role": "system", "content": f"Translate into German. Use: {glossary}."},
                {"role": "user", "content": document},
            ],
        }
    )
    missing = [term for term in terms.values() if term not in answer.text]
    return {"translation": answer.text, "missing": missing}
