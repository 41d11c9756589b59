// graphile-worker: run() as its documentation shows it.
import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import { main, url } from "./contract.mjs";

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
// The settings that its page on performance recommends for many short jobs.
const BEST = { worker: { concurrentJobs: 100, localQueue: { size: 2000 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } };

let utils;

await main({
  install: () => runMigrations({ connectionString: url, logger }),
  connect: async () => {
    utils = await makeWorkerUtils({ connectionString: url, logger });
  },
  publish: (n) => utils.addJob("noop", { n }),
  publishMany: (numbers) => utils.addJobs(numbers.map((n) => ({ identifier: "noop", payload: { n } }))),
  work: (handle, settings) =>
    run({
      connectionString: url,
      logger,
      noHandleSignals: true,
      taskList: { noop: async ({ n }) => handle(n) },
      ...(settings === "best" ? { preset: BEST } : {}),
    }),
});
