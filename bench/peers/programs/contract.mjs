// The commands of every peer's program: contract.py describes them, and tally.py describes the handlers.
import fs from "node:fs";

export const url = process.env.PGROUSE_BENCH_URL;

const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, which all processes of the machine share

let opened;
function mark(what) {
  const at = now();
  opened ??= fs.openSync(process.env.PGROUSE_BENCH_MARKS, "a", 0o600);
  fs.writeSync(opened, `${what} ${at}\n`);
}

function tally(messages) {
  const seen = new Uint8Array(messages + 1);
  let missing = messages;
  return (n) => {
    if (seen[n]) return mark(`again-${n}`);
    seen[n] = 1;
    if (missing === messages) mark("first");
    if (--missing === 0) mark("last");
  };
}

function handler() {
  const messages = Number(process.env.PGROUSE_BENCH_MESSAGES ?? 0);
  return messages ? tally(messages) : (n) => mark(String(n));
}

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

async function publish(peer, first, count, chunk) {
  await peer.connect();
  const begin = now();
  for (let at = first; at < first + count; at += chunk) {
    const length = Math.min(chunk, first + count - at);
    await peer.publishMany(Array.from({ length }, (_, i) => at + i));
  }
  console.log(JSON.stringify({ seconds: Number(now() - begin) / 1e9 }));
}

async function trickle(peer, first, count, every) {
  await peer.connect();
  const called = [];
  const returned = [];
  const begin = now();
  for (let number = 0; number < count; number++) {
    await sleep(Math.max(0, every * number - Number(now() - begin) / 1e9));
    called.push(Number(now()));
    await peer.publish(first + number);
    returned.push(Number(now()));
  }
  console.log(JSON.stringify({ called, returned }));
}

export async function main(peer) {
  const [command, ...given] = process.argv.slice(2);
  if (command === "work") return peer.work(handler(), given[0]);
  if (command === "install") await peer.install();
  if (command === "publish") await publish(peer, ...given.map(Number));
  if (command === "trickle") await trickle(peer, ...given.map(Number));
  process.exit(0);
}
