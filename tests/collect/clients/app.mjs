// The same small app for the JavaScript client: node app.mjs PORT. The environment names the endpoint.
import { GenericFakeChatModel } from "./fake_model.mjs";
import { RunnableLambda } from "@langchain/core/runnables";
import { BaseRetriever } from "@langchain/core/retrievers";
import { DynamicTool } from "@langchain/core/tools";
import { awaitAllCallbacks } from "@langchain/core/callbacks/promises";
import { traceable } from "langsmith/traceable";

const REQUESTS = 6;
const STEP_MS = 60;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// What the app knows to have run: kind and nearest enclosing kind. One request at a time.
let spans = [];
const stack = [];
async function span(kind, work) {
  spans.push([kind, stack.at(-1) ?? ""]);
  stack.push(kind);
  try {
    return await work();
  } finally {
    stack.pop();
  }
}

const embed = traceable(() => span("embedding", () => sleep(STEP_MS)), { name: "embed", run_type: "embedding" });

class Shelf extends BaseRetriever {
  lc_namespace = ["clients"];
  async _getRelevantDocuments(query) {
    return span("retriever", async () => {
      await embed();
      await sleep(STEP_MS);
      return [{ pageContent: `about ${query}`, metadata: {} }];
    });
  }
}

const model = new GenericFakeChatModel((n) => span("llm", () => sleep(STEP_MS)));
const shelf = new Shelf();
const lookup = new DynamicTool({
  name: "lookup",
  description: "Looks a word up.",
  func: (word) => span("tool", async () => (await sleep(STEP_MS), word.toUpperCase())),
});

const chain = RunnableLambda.from(async (question) => {
  const documents = await shelf.invoke(question);
  const draft = await model.invoke(`${question} ${documents[0].pageContent}`);
  const word = await lookup.invoke(draft.content);
  return (await model.invoke(word)).content;
}).withConfig({ runName: "ask" });

await chain.invoke("warm up");
for (let i = 0; i < REQUESTS; ++i) {
  spans = [];
  const started = process.hrtime.bigint();
  await span("root", () => chain.invoke(`question ${i}`));
  const duration = process.hrtime.bigint() - started;
  console.log(JSON.stringify({ spans, duration_ns: Number(duration) }));
}
await awaitAllCallbacks();
