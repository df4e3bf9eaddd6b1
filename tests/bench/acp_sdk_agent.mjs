// The least agent on the official SDK: it answers each prompt with "pong".
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const { agent, client } = acp.methods;
acp
  .agent({ name: 'least' })
  .onRequest(agent.initialize, async () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest(agent.session.new, async () => ({ sessionId: 's' }))
  .onRequest(agent.session.prompt, async ({ params, client: peer }) => {
    const update = {
      sessionUpdate: 'agent_message_chunk',
      content: { type: 'text', text: 'pong' },
    };
    await peer.notify(client.session.update, { sessionId: params.sessionId, update });
    return { stopReason: 'end_turn' };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
