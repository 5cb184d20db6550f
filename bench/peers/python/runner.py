"""redis-py's asyncio Lock. The contract of a runner is in ../../README.md."""

import argparse
import asyncio
import json
import math
import sys
import time

import redis
import redis.asyncio as client
from redis.asyncio.lock import Lock

EVENTS_MAX = 200_000


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--own-names", type=int, required=True)
    parser.add_argument("--section-us", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--process", type=int, required=True)
    return parser.parse_args()


class Notes:
    def __init__(self):
        self.acquisitions = 0
        self.waits = {}
        self.wait_max_us = 0.0
        self.events = []

    def wait(self, nanos):
        micros = nanos / 1e3
        bucket = math.floor(20 * math.log10(micros + 1))
        self.waits[bucket] = self.waits.get(bucket, 0) + 1
        self.wait_max_us = max(self.wait_max_us, micros)


async def work(lock, args, notes, end):
    keep = args.tasks == 1 and not args.own_names
    while time.monotonic() < end:
        asked = time.monotonic_ns()
        try:
            async with asyncio.timeout_at(end):
                await lock.acquire()
        except TimeoutError:
            notes.wait(time.monotonic_ns() - asked)
            return
        acquired = time.monotonic_ns()
        notes.wait(acquired - asked)
        notes.acquisitions += 1
        if args.section_us:
            await asyncio.sleep(args.section_us / 1e6)
        if keep and len(notes.events) < EVENTS_MAX:
            notes.events.append([acquired, time.monotonic_ns()])
        await lock.release()


async def main():
    args = parse()
    # The loop's clock is the monotonic one.
    connection = client.Redis.from_url(args.url)
    await connection.ping()
    # Its documentation leaves the pause between two questions at 0.1 s.
    pause = {"default": 0.1, "fastest": 0.001}[args.variant]
    locks = []
    for task in range(args.tasks):
        name = f"{args.name}/{task}" if args.own_names else args.name
        locks.append(Lock(connection, name, timeout=30, sleep=pause))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    notes = Notes()
    start = time.monotonic()
    end = start + args.seconds
    await asyncio.gather(*(work(lock, args, notes, end) for lock in locks))
    print(
        json.dumps(
            {
                "library": "redis-py",
                "version": redis.__version__,
                "variant": args.variant,
                "acquisitions": notes.acquisitions,
                "seconds": min(time.monotonic() - start, args.seconds),
                "wait_us": sorted(notes.waits.items()),
                "wait_max_us": notes.wait_max_us,
                "events": notes.events,
            }
        ),
        flush=True,
    )


asyncio.run(main())
