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

HELD_MAX = 200_000
# The pause between two attempts: 0.1 s in its documentation.
PAUSE_S = {"default": 0.1, "fastest": 0.001}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--own-names", type=int, required=True)
    parser.add_argument("--section-us", type=int, required=True)
    parser.add_argument("--primitive", choices=["mutex"], required=True)
    return parser.parse_args()


class Window:
    def __init__(self, seconds):
        self.end = time.monotonic_ns() + int(seconds * 1e9)
        self.result = {
            "version": redis.__version__,
            "acquisitions": 0,
            "wait_us": {},
            "wait_max_us": 0.0,
            "pair_us": {},
            "section_us": {},
            "held": [],
        }

    def count(self, histogram, nanos):
        micros = nanos / 1e3
        bucket = math.floor(200 * math.log10(micros + 1))
        counts = self.result[histogram]
        counts[bucket] = counts.get(bucket, 0) + 1
        return micros

    async def work(self, lock, args):
        keep_held = args.tasks == 1 and not args.own_names
        result = self.result
        while (asked := time.monotonic_ns()) < self.end:
            await lock.acquire()
            acquired = time.monotonic_ns()
            wait = self.count("wait_us", min(acquired, self.end) - asked)
            result["wait_max_us"] = max(result["wait_max_us"], wait)
            if acquired >= self.end:
                await lock.release()
                return
            if args.section_us:
                # By the clock, as timers are late.
                while time.monotonic_ns() < acquired + args.section_us * 1_000:
                    await asyncio.sleep(0)
                self.count("section_us", time.monotonic_ns() - acquired)
            if keep_held and len(result["held"]) < HELD_MAX:
                result["held"].append([acquired, time.monotonic_ns()])
            await lock.release()
            result["acquisitions"] += 1
            self.count("pair_us", time.monotonic_ns() - asked)


async def main():
    args = parse()
    connection = client.Redis.from_url(args.url)
    await connection.ping()
    locks = []
    for task in range(args.tasks):
        name = f"{args.name}/{task}" if args.own_names else args.name
        locks.append(Lock(connection, name, timeout=30, sleep=PAUSE_S[args.variant]))
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        window = Window(float(line))
        await asyncio.gather(*(window.work(lock, args) for lock in locks))
        print(json.dumps(window.result), flush=True)


asyncio.run(main())
