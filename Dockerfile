# The programs of docllm: `agent` by default, `producer ...` and `agent reaper` by naming them.
#
# A tag may mean another image tomorrow. For a build that stays the same, name the base image by its digest:
#   docker build --build-arg PYTHON=python:3.13-slim@sha256:... .
# `docker buildx imagetools inspect python:3.13-slim` shows the digest.
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS build

WORKDIR /build
COPY requirements.lock .
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY packaging /app
COPY docllm/*.py /app/docllm/
COPY schemas /app/docllm/schemas
COPY producer /app/docllm/producer
COPY agent /app/docllm/agent
# The files have the modes of the checkout, which a umask may have closed to other users.
# An image that cannot write its code's bytecode would compile the code again at each start.
RUN /venv/bin/python -m compileall -q --invalidation-mode unchecked-hash /app \
    && chmod -R a+rX /app \
    && printf '#!/bin/sh\nexec python -m docllm "$@"\n' > /venv/bin/docllm && chmod 755 /venv/bin/docllm

FROM ${PYTHON}

# Compose and Kubernetes run it with these numbers, too.
RUN groupadd --gid 10001 docllm && useradd --uid 10001 --gid 10001 --no-log-init --create-home --home-dir /data docllm
COPY --from=build /venv /venv
COPY --from=build /app /app

# Python must not look for modules in the working folder first: others may write there.
ENV PATH=/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

# The working folder holds docllm.toml if there is one, and the data folder of the embedded parts.
WORKDIR /data
# By its number, as Kubernetes wants it to tell that this is not root.
USER 10001:10001
STOPSIGNAL SIGTERM

# Exec form: the agent itself gets the signal and drains; a shell in between would swallow it.
ENTRYPOINT ["python", "-m"]
CMD ["agent", "--group", "docllm"]
