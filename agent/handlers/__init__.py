"""What is done for a task, by its type: a handler is an async function that gets a Context and returns an answer, a value or an Outcome."""

from agent.handlers.child import ChildLane
from agent.handlers.context import Answer, Attempt, CallRefusedError, Context, Handler, Tools
from agent.handlers.documents import DocumentError, Documents
from agent.handlers.runner import Handlers

__all__ = ["Answer", "Attempt", "CallRefusedError", "ChildLane", "Context", "DocumentError", "Documents", "Handler", "Handlers", "Tools"]
