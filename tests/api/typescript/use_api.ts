// A program of a user: publishes, works and manages messages with the types that openapi-typescript has generated.
// Its arguments are the address of the server and a token. It prints what it saw as JSON.
import createClient from "openapi-fetch";
import type { components, operations, paths } from "./schema.d.ts";

declare const process: { argv: string[] };
declare const console: { log(text: string): void };

type Message = components["schemas"]["ClaimedMessage"];
type Policy = components["schemas"]["TopicPolicy"];
// Operations have names of their own.
type Listed = operations["list_messages"]["responses"][200]["content"]["application/json"];

const [, , baseUrl, token] = process.argv;
const api = createClient<paths>({ baseUrl: baseUrl!, headers: { Authorization: `Bearer ${token}` } });

const published = await api.POST("/v1/messages", {
  params: { header: { "Idempotency-Key": "typescript-1" } },
  body: { topic: "ts.orders", payload: { id: 7 } },
});
const id: number | null | undefined = published.data?.id;

const claimed = await api.POST("/v1/claim", { body: { topics: ["ts.orders"] } });
const message: Message | undefined = claimed.data?.messages[0];
if (message === undefined) throw new Error("nothing was claimed");
const settled = await api.POST("/v1/messages/{message_id}/settle", {
  params: { path: { message_id: message.id } },
  body: { claim_id: message.claim_id, outcome: "complete", output: { ok: true } },
});

// null inherits the default.
const policy: Policy = { max_attempts: null, timeout: "30s" };
const changed = await api.PATCH("/v1/topics/{topic}", { params: { path: { topic: "ts.orders" } }, body: policy });

const listed = await api.GET("/v1/messages", { params: { query: { topic: "ts.orders", state: ["success"] } } });
const page: Listed | undefined = listed.data;

// An error is a problem, with a code.
const missing = await api.GET("/v1/messages/{message_id}", { params: { path: { message_id: 999_999_999 } } });
const problem: components["schemas"]["ProblemDetails"] | undefined = missing.error;

// An incident: messages die, the topic is paused and its alerts are silenced, the cause is fixed, and they are redriven.
const topic = "ts.mail";
const path = { topic };

async function work(outcome: "complete" | "fail"): Promise<number[]> {
  const { data } = await api.POST("/v1/claim", { body: { topics: [topic], limit: 10 } });
  const ended = (data?.messages ?? []).map(({ id, claim_id }) => ({ id, claim_id, outcome }));
  if (ended.length === 0) return [];
  const settled = await api.POST("/v1/settle", { body: { messages: ended } });
  return settled.data?.settled ?? [];
}

async function conditions(): Promise<components["schemas"]["ConditionInfo"][]> {
  await api.POST("/v1/maintenance/run");
  const { data } = await api.GET("/v1/conditions");
  return (data?.conditions ?? []).filter((each) => each.topic === topic);
}

await api.PATCH("/v1/topics/{topic}/thresholds", { params: { path }, body: { dead_per_hour: 1 } });
await api.POST("/v1/messages/batch", { body: { messages: [{ topic, payload: 1 }, { topic, payload: 2 }] } });
const died = await work("fail");
const [began] = await conditions();
const groups = await api.GET("/v1/dead/groups", { params: { query: { topic } } });
await api.POST("/v1/topics/{topic}/pause", { params: { path }, body: { reason: "the relay is down" } });
const silence = await api.POST("/v1/silences", { body: { topic, ends_in: "1h" } });
if (silence.data === undefined) throw new Error("no silence was added");
const silenced = await conditions();
await api.POST("/v1/dead/redrive", { body: { ids: died } });
await api.DELETE("/v1/silences/{silence_id}", { params: { path: { silence_id: silence.data.id } } });
await api.POST("/v1/topics/{topic}/resume", { params: { path } });
const done = await work("complete");
const left = await conditions();
const incident = {
  began: [began?.kind, began?.count],
  groups: groups.data?.groups.map((each) => each.count),
  silenced: silenced.length,
  done: done.length,
  left: left.length,
};

console.log(
  JSON.stringify({
    incident,
    published: [published.response.status, typeof id, published.response.headers.get("location")],
    settled: settled.data?.settled.length,
    changes: changed.data?.changes.length,
    listed: page?.messages.map((each) => each.state),
    problem: [problem?.status, problem?.code],
  }),
);
