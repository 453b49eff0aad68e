"""A consumer of relay's events in Python: the pattern needs no Go.

    pip install nats-py "psycopg[binary]"
    DATABASE_URL=postgres://... NATS_URL=nats://... python shipping.py

Each event takes effect once, although it can be delivered twice: its id goes into processed_events in the transaction of its
effect, and the message is acked after the commit. One message is in flight at a time, so the order of the stream is kept.
What is left when it dies: before the commit nothing, and the event is delivered again; after it the row, and the next
delivery only acks.
"""

import asyncio
import json
import os
import signal

import nats
import psycopg
from nats.js.api import AckPolicy, ConsumerConfig

CONSUMER = "shipping-python"
CLAIM = "INSERT INTO processed_events (consumer, event_id) VALUES (%s, %s) ON CONFLICT DO NOTHING"


async def ship(db, topic, order):
    if topic.endswith("order.placed"):
        await db.execute("INSERT INTO shipments (consumer, order_id) VALUES (%s, %s)", (CONSUMER, order["id"]))
    elif topic.endswith("order.cancelled"):
        await db.execute("DELETE FROM shipments WHERE consumer = %s AND order_id = %s", (CONSUMER, order["id"]))


async def handle(db, message):
    event_id = (message.headers or {}).get("Nats-Msg-Id")
    if not event_id:
        await message.term()  # nothing could tell its second delivery from its first
        return
    try:
        async with db.transaction():
            claimed = await db.execute(CLAIM, (CONSUMER, event_id))
            if claimed.rowcount == 1:  # else it has taken effect before
                await ship(db, message.subject, json.loads(message.data))
    except (psycopg.DataError, psycopg.IntegrityError, ValueError, KeyError) as err:
        print(f"event {event_id} failed, trying again: {err}", flush=True)
        await message.nak(delay=1)
        return
    await message.ack_sync()  # the server says that it has the ack


async def main():
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=5, max_ack_pending=1)
    stream = os.environ.get("STREAM", "OUTBOX")
    events = await nc.jetstream().pull_subscribe("", durable=CONSUMER, stream=stream, config=config)
    async with await psycopg.AsyncConnection.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
        while not stop.is_set():  # a lost database ends the program; whoever starts it again goes on
            try:
                for message in await events.fetch(1, timeout=1):
                    await handle(db, message)
            except nats.errors.TimeoutError:
                pass  # nothing new
    await nc.close()


asyncio.run(main())
