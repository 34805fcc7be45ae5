# The programs of docllm: `agent` by default, `producer ...` and `agent reaper` by naming them.
FROM python:3.13-slim AS build

WORKDIR /build
COPY requirements.lock .
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock

FROM python:3.13-slim

RUN useradd --system --uid 10001 --create-home --home-dir /data docllm
COPY --from=build /venv /venv
COPY schemas /app/schemas
COPY producer /app/producer
COPY agent /app/agent

ENV PATH=/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

# The working folder holds docllm.toml if there is one, and the data folder of the embedded parts.
WORKDIR /data
USER docllm
STOPSIGNAL SIGTERM

# Exec form: the agent itself gets the signal and drains; a shell in between would swallow it.
ENTRYPOINT ["python", "-m"]
CMD ["agent", "--group", "docllm"]
