"""Routes to providers, their fallbacks and the limits of their accounts."""
