"""The same calls as tasks of Celery on Redis: a module for workers, and `peer_celery.py TASKS`.

`PEER_REDIS` and `PEER_LLM` name the servers. With `PEER_LATE`, a task is acknowledged when it has
ended, and one that a dead worker held is delivered again after that many seconds.
"""

import os
import sys

from celery import Celery
from peer_loop import ask

app = Celery("peer_celery", broker=os.environ["PEER_REDIS"], backend=os.environ["PEER_REDIS"])
if late_s := os.environ.get("PEER_LATE"):
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True
    app.conf.worker_prefetch_multiplier = 1
    app.conf.broker_transport_options = {"visibility_timeout": int(late_s)}


@app.task(name="ask")
def ask_task(name: str) -> str:
    """Call the LLM for one task."""
    return ask(os.environ["PEER_LLM"], name)


def main(tasks: str) -> None:
    """Send all tasks."""
    for number in range(int(tasks)):
        ask_task.delay(f"t{number}")


if __name__ == "__main__":
    main(*sys.argv[1:])
