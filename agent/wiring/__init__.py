"""The composition root: builds the parts of an agent, each from the parts made before it.

`docllm.agent.app`, or a simulation, chooses adapters and owns threads; no part is chosen or run
here.

A claimed record passes through five calls. Each call is made by the part in the line above it:

    claimer.claim(deliveries, purpose, ahead)     agent/dispatch/claimer.py
    slots.start(delivery)                         agent/execution/slots.py
    attempt_runner.run(delivery, start, routes)   agent/execution/attempt_runner.py
    settler.settle(delivery, outcome)             agent/execution/settler.py
    dispatcher.take_verdicts(page)                agent/dispatch/dispatcher.py

Before them, `dispatcher.deliver` takes the record from its source; after them, its partition's
watermark may move. The first two ask `admission`. The settler calls back: it is given
`dispatcher.take_verdicts` when it is started.
"""
