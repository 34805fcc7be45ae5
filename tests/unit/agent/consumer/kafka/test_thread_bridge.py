"""The way of events from the consumer thread to the event loop."""

import asyncio
import threading

from docllm.agent.consumer.kafka.thread_bridge import MAX_UNTAKEN, ThreadBridge
from docllm.agent.ports import Event, SourceFailed


async def test_events_arrive_in_the_order_in_which_they_were_given() -> None:
    """The loop delivers events in the order in which a thread gave them."""
    heard: list[Event] = []
    bridge = ThreadBridge(loop=asyncio.get_running_loop(), deliver=heard.append)

    def give() -> None:
        for number in range(100):
            bridge.give(SourceFailed(str(number)))

    thread = threading.Thread(target=give)
    thread.start()
    await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)

    assert heard == [SourceFailed(str(n)) for n in range(100)]


async def test_the_bridge_is_full_until_the_loop_takes_the_events() -> None:
    """The hand-over fills up while the loop takes nothing, and has room when the loop caught up."""
    bridge = ThreadBridge(loop=asyncio.get_running_loop(), deliver=lambda _: None)
    for n in range(MAX_UNTAKEN + 1):
        bridge.give(SourceFailed(str(n)))
    before = bridge.full
    await asyncio.to_thread(bridge.wait_for_room, 5.0)
    assert (before, bridge.full) == (True, False)


async def test_nothing_is_delivered_after_the_last_event() -> None:
    """After the last event, neither waiting nor later events are delivered."""
    heard: list[Event] = []
    bridge = ThreadBridge(loop=asyncio.get_running_loop(), deliver=heard.append)
    bridge.give(SourceFailed("on its way"))
    bridge.end(SourceFailed("last"))
    bridge.give(SourceFailed("later"))
    bridge.end(SourceFailed("again"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert heard == [SourceFailed("last")]


def test_a_closed_loop_does_not_stop_the_thread() -> None:
    """A thread that hands over to a closed loop goes on."""
    heard: list[Event] = []
    loop = asyncio.new_event_loop()
    bridge = ThreadBridge(loop=loop, deliver=heard.append)
    loop.close()

    bridge.give(SourceFailed("too late"))

    assert heard == []
