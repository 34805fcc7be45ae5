"""A for-loop with a thread pool: `python peer_loop.py URL TASKS THREADS FILE`.

It appends each result to FILE, and when it is started again it leaves out what stands there.
"""

import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def ask(url: str, name: str) -> str:
    """Call the LLM for one task; return the answer."""
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": f"Summarize: {name}"}]}
    request = urllib.request.Request(  # noqa: S310 - the rehearsal LLM
        f"{url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "X-Client-Request-Id": f"{name}#1"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - the same
        return str(json.load(reply)["choices"][0]["message"]["content"])


def main(url: str, tasks: str, threads: str, file: str) -> None:
    """Run all tasks that have no result yet."""
    results = Path(file)
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
    done = {json.loads(line)["id"] for line in lines}
    names = [f"t{number}" for number in range(int(tasks)) if f"t{number}" not in done]
    with ThreadPoolExecutor(int(threads)) as pool, results.open("a", 1, "utf-8") as out:
        for name, answer in zip(names, pool.map(lambda name: ask(url, name), names), strict=True):
            out.write(json.dumps({"id": name, "result": answer}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
