"""Whatever the loop does, each task has at most one active delivery, and none vanishes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from tests.unit.agent.inflight.test_table import new_delivery, owned_by, room


class Agent(RuleBasedStateMachine):
    """A loop that does anything the real one may do, with a list of all unfinished records."""

    def __init__(self) -> None:
        super().__init__()
        self.table = InFlightTable(limits=InFlightLimits())
        self.now_s = 0.0
        self.offset = 0
        self.live: list[Delivery] = []
        self.asking: list[Delivery] = []
        self.claiming: list[Delivery] = []
        self.running: list[Delivery] = []

    @rule(task_id=st.integers(1, 4), redelivered=st.booleans())
    # Hypothesis draws it by name.
    def arrive(self, task_id: int, redelivered: bool) -> None:  # noqa: FBT001
        self.offset += 1
        delivery = new_delivery(task_id, self.offset)
        self.live.append(delivery)
        self.table.add(delivery, self.now_s, redelivered=redelivered)

    @rule(limit=st.integers(2, 6))
    def ask(self, limit: int) -> None:
        self.asking += self.table.take_to_ask(self.now_s, limit)

    @precondition(lambda self: self.asking)
    @rule(answer=st.sampled_from(["ready", "held", "early", "done"]), agent_id=st.integers(7, 9))
    def answered(self, answer: str, agent_id: int) -> None:
        delivery = self.asking.pop()
        if delivery.state is DeliveryState.ASKING:
            self.act(delivery, answer, agent_id)

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        taken = self.table.take_ready(limit, room)
        assert len({delivery.task_id for delivery in taken}) == len(taken)
        self.claiming += taken

    @precondition(lambda self: self.claiming)
    @rule(
        answer=st.sampled_from(["claimed", "ready", "held", "early", "done"]),
        agent_id=st.integers(7, 9),
    )
    def claim_answered(self, answer: str, agent_id: int) -> None:
        delivery = self.claiming.pop()
        if answer == "claimed":
            delivery.state = DeliveryState.RUNNING
            self.running.append(delivery)
        else:
            self.act(delivery, answer, agent_id)

    @precondition(lambda self: self.running)
    @rule(superseded=st.booleans())
    def settled(self, superseded: bool) -> None:  # noqa: FBT001 - hypothesis draws it by name
        delivery = self.running.pop()
        if superseded:
            self.table.queue_for_question(delivery)
        else:
            for copy in self.table.behind.take_copies(delivery, 0):
                self.finish(copy)
            self.finish(delivery)

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(agent_id=st.integers(7, 9))
    def agent_gone(self, agent_id: int) -> None:
        self.table.delayed.wake([agent_id], self.now_s)

    @rule()
    def batch_cancelled(self) -> None:
        self.table.ask_about_batches(
            frozenset({delivery.publication.batch for delivery in self.live})
        )

    @rule(data=st.data())
    def partition_goes(self, data: st.DataObject) -> None:
        """Drop some of the waiting deliveries, as the loop does."""
        waiting = [
            delivery
            for delivery in self.live
            if delivery.state not in {DeliveryState.CLAIMING, DeliveryState.RUNNING}
        ]
        for delivery in (
            data.draw(st.lists(st.sampled_from(waiting), unique_by=id)) if waiting else ()
        ):
            self.finish(delivery)

    def act(self, delivery: Delivery, answer: str, agent_id: int) -> None:
        if answer == "ready":
            self.table.queue_for_claim(delivery)
        elif answer == "held":
            delivery.row = owned_by(delivery.task_id, agent_id)
            self.table.delay_while_held(delivery, agent_id, self.now_s)
        elif answer == "early":
            delivery.row = owned_by(delivery.task_id, 0)
            self.table.delay(delivery, self.now_s + 2.0)
        else:
            self.finish(delivery)

    def finish(self, delivery: Delivery) -> None:
        self.table.remove(delivery)
        self.live.remove(delivery)

    @invariant()
    def one_entry_of_each_task_is_at_work(self) -> None:
        busy = [delivery.task_id for delivery in self.claiming + self.running]
        assert len(set(busy)) == len(busy)
        assert set(self.table._by_task) == {delivery.task_id for delivery in self.live}

    @invariant()
    def bodies_are_counted(self) -> None:
        assert self.table.bodies_bytes == sum(len(delivery.value or b"") for delivery in self.live)

    def teardown(self) -> None:
        """Check that the ledger is asked about every unfinished record, or that it is claimed."""
        while self.asking:
            self.answered("held", 7)
        while self.claiming:
            self.claim_answered("ready", 7)
        while self.running:
            self.settled(superseded=True)
        for _ in range(len(self.live) + 1):
            self.now_s += 100.0
            for delivery in self.table.take_to_ask(self.now_s, 1000) + self.table.take_ready(
                1000, room
            ):
                self.finish(delivery)
        assert self.live == []
        assert self.table._by_task == {}


TestAgent = Agent.TestCase
TestAgent.settings = settings(max_examples=150, stateful_step_count=40)
TestAgent.__doc__ = (
    "Whatever is answered, revoked or settled: one delivery of each task is at work, and "
    "none vanishes."
)
