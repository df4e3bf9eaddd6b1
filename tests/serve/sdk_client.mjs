// A client on the official SDK over WebSocket: attaches to the server that its arguments name, and prints what it has seen as JSON.
import * as acp from '@agentclientprotocol/sdk';
import { createWebSocketStream } from '@agentclientprotocol/sdk/experimental/ws-client';
import { WebSocket } from 'ws';

const [cwd, prompt, url, token] = process.argv.slice(2);
const seen = { updates: [], permissions: [] };
const stream = createWebSocketStream(url, {
  WebSocket,
  headers: { Authorization: `Bearer ${token}` },
});
const client = acp
  .client({ name: 'test' })
  .onNotification(acp.methods.client.session.update, async ({ params }) => {
    seen.updates.push(params.update);
  })
  .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
    seen.permissions.push(params);
    return { outcome: { outcome: 'selected', optionId: params.options[0].optionId } };
  });
await client.connectWith(stream, async (ctx) => {
  seen.initialized = await ctx.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  const session = await ctx.request(acp.methods.agent.session.new, { cwd, mcpServers: [] });
  const sessionId = session.sessionId;
  const ask = (text) => ({ sessionId, prompt: [{ type: 'text', text }] });
  seen.ended = await ctx.request(acp.methods.agent.session.prompt, ask(prompt));
  const cancelled = ctx.request(acp.methods.agent.session.prompt, ask('wait'));
  await new Promise((done) => setTimeout(done, 500));
  await ctx.notify(acp.methods.agent.session.cancel, { sessionId });
  seen.cancelled = await cancelled;
});
console.log(JSON.stringify(seen));
process.exit(0);
