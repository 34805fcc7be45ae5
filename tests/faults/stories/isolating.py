"""Deaths of an agent whose handlers run in processes."""

from tests.faults.installation import Installation

TASKS = 40
SLOTS = ("--slots", "3")
SETTINGS = '[types.document]\nhandler = "apart:handle"\nrun = "process"\n'
MODULE = """
def handle(context):
    messages = [{"role": "user", "content": context.document() or context.prompt}]
    return context.complete({"model": context.model, "messages": messages})
"""


def isolating(installation: Installation) -> None:
    """The processes end with their agent; its tasks run again in processes of the next one."""
    deployment = installation.deployment
    deployment.llm("--latency", "0.1")
    (deployment.folder / "apart.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    deployment.load(TASKS)
    installation.crash_agent("process.run_sent", *SLOTS, most=10)
    installation.crash_agent("process.call_received", *SLOTS, most=20)
    installation.crash_agent("process.run_ended", *SLOTS, most=10)
    installation.recover(*SLOTS)
