"""The shortest schedules that show a mistake of the protocol.

Each runs in a world of two tasks whose records are on their topic.
"""

from docllm.agent.ledger.leases import leasing
from tests.contract.protocol.topics import TASKS
from tests.contract.protocol.world import World
from tests.support.ledger_database import DEAD, RELEASED, RETRY, SUCCEEDED


def superseded(world: World) -> None:
    """A claim is reaped while its call runs, and the other agent claims the task."""
    first, other = world.agents
    run = world.take(first)
    world.expire()
    world.move(TASKS, other)
    world.take(other)
    world.settle_one(first, run, SUCCEEDED)


def superseded_and_released(world: World) -> None:
    """A claim is reaped while its call runs, and the other agent claims and releases the task."""
    first, other = world.agents
    run = world.take(first)
    world.expire()
    world.move(TASKS, other)
    world.settle_one(other, world.take(other), RELEASED)
    world.settle_one(first, run, SUCCEEDED)


def settled_between_finding_and_reset(world: World) -> None:
    """The reaper reads a lost agent's task, the agent settles it, the reaper resets it."""
    agent = world.agents[0]
    run = world.take(agent)
    world.ledger_db.run(lambda c: leasing.declare_lost(c, agent.lease.agent_id))
    world.find()
    world.settle_one(agent, run, SUCCEEDED)
    world.reset()


def held_and_given_back(world: World) -> None:
    """The new owner of a partition sees a held record, and its holder releases the claim."""
    first, other = world.agents
    run = world.take(first)
    world.move(TASKS, other)
    world.claim_one(other, *world.offered(other)[0])
    world.commit()
    world.settle_one(first, run, RELEASED)


def the_second_first(world: World) -> None:
    """Of two tasks the later one is settled first."""
    agent = world.agents[0]
    world.settle_one(agent, world.take(agent, 1), SUCCEEDED)
    world.commit()


def retried_in_vain(world: World) -> None:
    """A retry is ordered, its record does not arrive, and the offset moves on."""
    agent = world.agents[0]
    world.settle_one(agent, world.take(agent), RETRY)
    world.bus.delivery = "failed"
    world.relay_all()
    world.commit()


def dead(world: World) -> None:
    """A task is given up."""
    agent = world.agents[0]
    world.settle_one(agent, world.take(agent), DEAD)
    world.commit()


def reaped(world: World) -> None:
    """A task is reaped, and nobody has claimed it since."""
    world.take(world.agents[0])
    world.expire()


def an_old_record_comes_again(world: World) -> None:
    """A task was retried, and its first record is delivered once more."""
    first, other = world.agents
    world.settle_one(first, world.take(first), RETRY)
    world.due()
    world.move(TASKS, other)
    world.claim_one(other, *world.offered(other)[0])


def settled_late_before_its_order_is_sent(world: World) -> None:
    """A reaped task is settled by its last owner while its order waits for its grace."""
    agent = world.agents[0]
    run = world.take(agent)
    world.expire()
    world.settle_one(agent, run, SUCCEEDED)
    world.relay_all()


def released(world: World) -> None:
    """A claim is released, and the offset could move on."""
    agent = world.agents[0]
    world.settle_one(agent, world.take(agent), RELEASED)
    world.commit()


def superseded_with_its_partition(world: World) -> None:
    """A retried task is reaped and claimed by its other record.

    Its first claim, whose partition never moved, is superseded.
    """
    first, other = world.agents
    world.settle_one(first, world.take(first), RETRY)
    world.relay_all()
    world.due()
    run = world.take(other)
    world.expire()
    world.relay_all()
    world.take(first, -1)
    world.settle_one(other, run, SUCCEEDED)
    world.commit()


def leaked(world: World) -> None:
    """A claim commits, its answer is lost, and the agent that lives on has forgotten it."""
    agent = world.agents[0]
    world.ledger_db.answers([world.ledger_db.record(world.tasks[0])], agent.lease.next_owner())


def lost_by_kafka(world: World) -> None:
    """A topic loses its records before anybody has read them."""
    world.lossy = True
    world.bus.lose(TASKS)


SCHEDULES = (
    superseded,
    superseded_and_released,
    settled_between_finding_and_reset,
    held_and_given_back,
    the_second_first,
    retried_in_vain,
    dead,
    reaped,
    an_old_record_comes_again,
    settled_late_before_its_order_is_sent,
    released,
    superseded_with_its_partition,
    leaked,
    lost_by_kafka,
)
