// An agent on the official SDK: reads, asks, writes and runs through its client, and says what came of it as JSON.
import { pathToFileURL } from 'node:url';
import { Readable, Writable } from 'node:stream';

const acp = await import(pathToFileURL(process.argv[2]));
const { client, agent: own } = acp.methods;
const attempt = (promise) => promise.then((result) => result ?? {}, (error) => ({ error: error.message }));

acp
  .agent({ name: 'test' })
  .onRequest(own.initialize, () => ({ protocolVersion: acp.PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(own.session.new, () => ({ sessionId: 's1' }))
  .onRequest(own.session.prompt, async ({ params, client: ctx }) => {
    const sessionId = params.sessionId;
    const [path, outside] = params.prompt[0].text.split('\n');
    const ask = (fields) =>
      attempt(
        ctx.request(client.session.requestPermission, {
          sessionId,
          toolCall: { toolCallId: 'c1', title: 'edit', ...fields },
          options: [
            { optionId: 'y', name: 'Yes', kind: 'allow_once' },
            { optionId: 'n', name: 'No', kind: 'reject_once' },
          ],
        }),
      );
    const said = {};
    said.read = await attempt(ctx.request(client.fs.readTextFile, { sessionId, path, line: 2, limit: 1 }));
    const diff = { type: 'diff', path, oldText: 'two', newText: '2' };
    said.asked = await ask({ kind: 'edit', content: [diff], locations: [{ path }] });
    said.written = await attempt(ctx.request(client.fs.writeTextFile, { sessionId, path, content: 'one\n2\n' }));
    said.outside = await attempt(ctx.request(client.fs.writeTextFile, { sessionId, path: outside, content: 'x' }));
    said.none = await attempt(ctx.request(client.fs.readTextFile, { sessionId, path: `${path}-none` }));
    said.denied = await ask({ kind: 'execute', rawInput: { command: 'git push' } });
    const terminal = await ctx.createTerminal({
      sessionId,
      command: 'sh',
      args: ['-c', 'printf "%s-ä" $A; sleep 1000'],
      env: [{ name: 'A', value: 'b c' }],
      outputByteLimit: 3,
    });
    while (!(said.output = await terminal.currentOutput()).output.endsWith('ä')) {
      await new Promise((done) => setTimeout(done, 20));
    }
    await terminal.kill();
    said.exit = await terminal.waitForExit();
    await terminal.release();
    await ctx.notify(client.session.update, {
      sessionId,
      update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: JSON.stringify(said) } },
    });
    return { stopReason: 'end_turn' };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
