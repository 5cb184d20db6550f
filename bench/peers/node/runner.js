// redlock and redis-semaphore for Node. The contract of a runner is in ../../README.md.

const fs = require("node:fs");
const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");
const { Semaphore } = require("redis-semaphore");

const HELD_MAX = 200_000;
const PERMITS = 5;
const TTL_MS = 30_000;

const args = {};
for (let i = 2; i + 1 < process.argv.length; i += 2) {
  args[process.argv[i].slice(2)] = process.argv[i + 1];
}
const tasks = Number(args.tasks);
const ownNames = args["own-names"] === "1";
const section = BigInt(args["section-us"]) * 1000n;
const keepHeld = tasks === 1 && !ownNames;

const now = () => process.hrtime.bigint();
const earlier = (a, b) => (a < b ? a : b);

// The packages do not export the file with their version.
function version() {
  const inside = new RegExp(`/node_modules/${args.library}/.*$`);
  const file = require.resolve(args.library).replace(inside, `/node_modules/${args.library}/package.json`);
  return JSON.parse(fs.readFileSync(file, "utf8")).version;
}

function count(histogram, nanos) {
  const micros = Number(nanos) / 1e3;
  const bucket = Math.floor(200 * Math.log10(micros + 1));
  histogram[bucket] = (histogram[bucket] ?? 0) + 1;
  return micros;
}

async function work(lock, end, result) {
  for (let asked = now(); asked < end; asked = now()) {
    await lock.acquire();
    const acquired = now();
    const wait = count(result.wait_us, earlier(acquired, end) - asked);
    result.wait_max_us = Math.max(result.wait_max_us, wait);
    if (acquired >= end) return void (await lock.release());
    if (section > 0) {
      // By the clock, as timers are late.
      while (now() < acquired + section) await new Promise(setImmediate);
      count(result.section_us, now() - acquired);
    }
    if (keepHeld && result.held.length < HELD_MAX) {
      result.held.push([Number(acquired), Number(now())]);
    }
    await lock.release();
    result.acquisitions += 1;
    count(result.pair_us, now() - asked);
  }
}

async function window(locks, seconds) {
  const result = {
    version: version(),
    acquisitions: 0,
    wait_us: {},
    wait_max_us: 0,
    pair_us: {},
    section_us: {},
    held: [],
  };
  const end = now() + BigInt(Math.round(seconds * 1e9));
  await Promise.all(locks.map((lock) => work(lock, end, result)));
  return result;
}

// Makes the lock of one task.
function redlocks(servers) {
  const settings =
    args.variant === "fastest"
      ? { retryCount: -1, retryDelay: 1, retryJitter: 1 }
      : // Its own defaults, but it does not give up.
        { retryCount: -1, retryDelay: 200, retryJitter: 100 };
  const redlock = new Redlock(servers, settings);
  redlock.on("error", () => {});
  return (name) => {
    let held;
    return {
      acquire: async () => void (held = await redlock.acquire([name], TTL_MS)),
      release: () => held.release(),
    };
  };
}

function semaphores(servers) {
  const settings = { lockTimeout: TTL_MS, acquireTimeout: Infinity };
  if (args.variant === "fastest") settings.retryInterval = 1;
  return (name) => new Semaphore(servers[0], name, PERMITS, settings);
}

async function main() {
  const servers = args.url.split(",").map((url) => new Redis(url));
  // Lost connections fail its requests. Without a listener they would also end the process.
  servers.forEach((server) => server.on("error", () => {}));
  await Promise.all(servers.map((server) => server.ping()));
  const create = (args.library === "redlock" ? redlocks : semaphores)(servers);
  const locks = Array.from({ length: tasks }, (_, task) =>
    create(ownNames ? `${args.name}/${task}` : args.name),
  );
  console.log("ready");
  for await (const line of readline.createInterface(process.stdin)) {
    console.log(JSON.stringify(await window(locks, Number(line))));
  }
  process.exit(0);
}

main().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
