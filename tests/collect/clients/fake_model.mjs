// A chat model without a network that claims tokens, as a real one's answer does.
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage } from "@langchain/core/messages";

export class GenericFakeChatModel extends BaseChatModel {
  constructor(work) {
    super({});
    this.work = work;
    this.answers = 0;
  }
  _llmType() {
    return "fake";
  }
  async _generate() {
    const n = ++this.answers;
    await this.work(n);
    const message = new AIMessage({
      content: `answer ${n}`,
      usage_metadata: { input_tokens: 10 + n, output_tokens: 3, total_tokens: 13 + n },
      response_metadata: { model_name: "fake-1", finish_reason: "stop" },
    });
    return { generations: [{ text: message.content, message }] };
  }
}
