"""How many tokens common models take."""

# Input and output together, as the providers state them, compared in November 2026 with the table
# of litellm 1.110. A name covers its dated versions, such as gpt-4o-2024-08-06; the longest name
# decides.
KNOWN_TOKENS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 400_000,
    "gpt-5-chat": 128_000,
    "gpt-5.1": 400_000,
    "gpt-5.1-chat": 128_000,
    "gpt-5.2": 400_000,
    "gpt-5.2-chat": 128_000,
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.5": 1_050_000,
    "gpt-5.6": 1_050_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "claude-3": 200_000,
    "claude-3-5": 200_000,
    "claude-3-7": 200_000,
    "claude-haiku-4-5": 200_000,
    "claude-haiku-5-5": 1_000_000,
    "claude-opus-4-1": 200_000,
    "claude-opus-4-5": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-5": 200_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "gemini-2.0-flash": 1_048_576,
    "gemini-2.5-flash": 1_048_576,
    "gemini-2.5-pro": 1_048_576,
    "gemini-3-flash": 1_048_576,
    "gemini-3.1-flash": 1_048_576,
    "gemini-3.1-pro": 1_048_576,
    "gemini-3.5-flash": 1_048_576,
    "mistral-large": 262_144,
    "mistral-large-4": 1_048_576,
    "mistral-large-2407": 128_000,
    "mistral-large-2411": 128_000,
    "mistral-medium": 262_144,
}
UNKNOWN_TOKENS = 8192  # assumed for models whose context size is unknown


def known_tokens(model: str) -> int | None:
    """Return how many tokens a common model takes, None for any other."""
    name = model.rpartition("/")[2]  # a gateway puts the provider in front
    known = [start for start in KNOWN_TOKENS if name == start or name.startswith(f"{start}-")]
    return KNOWN_TOKENS[max(known, key=len)] if known else None
