"""Documents that tasks name by URI: fetched from their source, compared, converted to text.

Every source refuses what the settings do not allow. Handlers know this package only through
`docllm.agent.handlers.documents`. Nothing is imported here, because converting processes stay
small.
"""
