// pg-boss: work() as its documentation shows it.
import { PgBoss } from "pg-boss";
import { main, url } from "./contract.mjs";

const NAME = "noop";
const BEST = { batchSize: 5000, burstWhenBatchFull: true };

async function start(options = {}) {
  const boss = new PgBoss({ connectionString: url, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

let boss;

await main({
  install: async () => {
    boss = await start();
    await boss.createQueue(NAME);
  },
  connect: async () => {
    boss = await start({ supervise: false, schedule: false });
  },
  publish: (n) => boss.send(NAME, { n }),
  publishMany: (numbers) => boss.insert(NAME, numbers.map((n) => ({ data: { n } }))),
  work: async (handle, settings) => {
    const isNotified = settings !== "defaults";
    boss = await start({ useListenNotify: isNotified });
    if (isNotified) await boss.updateQueue(NAME, { notify: true });
    await boss.work(NAME, settings === "best" ? BEST : {}, async (jobs) => {
      for (const job of jobs) handle(job.data.n);
    });
  },
});
