// redlock for Node. The contract of a runner is in ../../README.md.

const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const EVENTS_MAX = 200_000;

const args = {};
for (let i = 2; i + 1 < process.argv.length; i += 2) {
  args[process.argv[i].slice(2)] = process.argv[i + 1];
}
const tasks = Number(args.tasks);
const ownNames = args["own-names"] === "1";
const section = Number(args["section-us"]) / 1000;
const seconds = Number(args.seconds);

const now = () => process.hrtime.bigint();
// Its package does not export the file that says so.
function version() {
  const file = require.resolve("redlock").replace(/redlock.dist.*$/, "redlock/package.json");
  return JSON.parse(require("node:fs").readFileSync(file, "utf8")).version;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const notes = { acquisitions: 0, waits: new Map(), waitMax: 0, events: [] };

function noteWait(nanos) {
  const micros = Number(nanos) / 1e3;
  const bucket = Math.floor(20 * Math.log10(micros + 1));
  notes.waits.set(bucket, (notes.waits.get(bucket) ?? 0) + 1);
  notes.waitMax = Math.max(notes.waitMax, micros);
}

async function work(redlock, name, end) {
  while (now() < end) {
    const asked = now();
    // A waiter that is cut off at the end must not keep the process: it exits by itself.
    const lock = await Promise.race([
      redlock.acquire([name], 30_000),
      pause(Number(end - asked) / 1e6).then(() => null),
    ]);
    const acquired = now();
    noteWait(acquired - asked);
    if (lock === null) return;
    notes.acquisitions += 1;
    if (section > 0) await pause(section);
    if (tasks === 1 && !ownNames && notes.events.length < EVENTS_MAX) {
      notes.events.push([Number(acquired), Number(now())]);
    }
    await lock.release();
  }
}

async function main() {
  const servers = args.url.split(",").map((url) => new Redis(url));
  await Promise.all(servers.map((server) => server.ping()));
  const settings =
    args.variant === "fastest"
      ? { retryCount: -1, retryDelay: 1, retryJitter: 1 }
      : // Its own defaults, but it does not give up.
        { retryCount: -1, retryDelay: 200, retryJitter: 100 };
  const redlock = new Redlock(servers, settings);
  console.log("ready");
  await new Promise((go) => readline.createInterface(process.stdin).once("line", go));
  const start = now();
  const end = start + BigInt(Math.round(seconds * 1e9));
  const names = Array.from({ length: tasks }, (_, task) =>
    ownNames ? `${args.name}/${task}` : args.name,
  );
  await Promise.all(names.map((name) => work(redlock, name, end)));
  const answer = {
    library: "redlock",
    version: version(),
    variant: args.variant,
    acquisitions: notes.acquisitions,
    seconds: Math.min(Number(now() - start) / 1e9, seconds),
    wait_us: [...notes.waits].sort((a, b) => a[0] - b[0]),
    wait_max_us: notes.waitMax,
    events: notes.events,
  };
  process.stdout.write(`${JSON.stringify(answer)}\n`, () => process.exit(0));
}

main().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
