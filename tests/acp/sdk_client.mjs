// A client on the official SDK: drives the agent that its arguments name, and prints what it has seen as JSON.
import { spawn } from 'node:child_process';
import { Readable, Writable } from 'node:stream';
import * as acp from '@agentclientprotocol/sdk';

const [cwd, prompt, ...command] = process.argv.slice(2);
const agent = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
const seen = { updates: [], permissions: [] };
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
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
  seen.session = session;
  seen.ended = await ctx.request(acp.methods.agent.session.prompt, {
    sessionId: session.sessionId,
    prompt: [{ type: 'text', text: prompt }],
  });
  const cancelled = ctx.request(acp.methods.agent.session.prompt, {
    sessionId: session.sessionId,
    prompt: [{ type: 'text', text: 'wait' }],
  });
  await new Promise((done) => setTimeout(done, 500));
  await ctx.notify(acp.methods.agent.session.cancel, { sessionId: session.sessionId });
  seen.cancelled = await cancelled;
  const { sessionId } = session;
  const of = acp.methods.agent.session;
  seen.mode = await ctx.request(of.setMode, { sessionId, modeId: 'plan' });
  const choice = { sessionId, configId: 'mode', value: 'ask' };
  seen.options = await ctx.request(of.setConfigOption, choice);
  seen.listed = await ctx.request(of.list, { cwd });
  seen.closed = await ctx.request(of.close, { sessionId });
  const before = seen.updates.length;
  seen.resumed = await ctx.request(of.resume, { sessionId, cwd, mcpServers: [] });
  seen.toldByResume = seen.updates.slice(before).map((update) => update.sessionUpdate);
  const replayed = seen.updates.length;
  seen.loaded = await ctx.request(of.load, { sessionId, cwd, mcpServers: [] });
  seen.toldByLoad = seen.updates.slice(replayed).map((update) => update.sessionUpdate);
  seen.deleted = await ctx.request(of.delete, { sessionId });
  const methodId = seen.initialized.authMethods[0].id;
  seen.refused = await ctx
    .request(acp.methods.agent.authenticate, { methodId })
    .catch((error) => error.code);
});
agent.stdin.end();
seen.status = await new Promise((done) => agent.on('exit', done));
console.log(JSON.stringify(seen));
process.exit(0);
