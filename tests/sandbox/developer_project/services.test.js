const test = require('node:test');
const assert = require('node:assert');
const childProcess = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { once } = require('node:events');
const { Worker } = require('node:worker_threads');

test('a server on the loopback answers', async (t) => {
  const server = http.createServer((_, response) => response.end('pong'));
  t.after(() => (server.closeAllConnections(), server.close()));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
  assert.strictEqual(await answer.text(), 'pong');
});

test('a unix socket answers', async (t) => {
  const socket = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'n-')), 's');
  const server = net.createServer((connection) => connection.end('pong'));
  t.after(() => server.close());
  server.listen(socket);
  await once(server, 'listening');
  const [answer] = await once(net.connect(socket), 'data');
  assert.strictEqual(String(answer), 'pong');
});

test('a child process and its messages work', async () => {
  const child = childProcess.fork(path.join(__dirname, 'library', 'child.js'));
  const [message] = await once(child, 'message');
  assert.strictEqual(message, 42);
});

test('a worker thread works', async () => {
  const worker = new Worker("require('node:worker_threads').parentPort.postMessage(42)", { eval: true });
  assert.deepStrictEqual(await once(worker, 'message'), [42]);
});

test('a file is watched', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'n-'));
  const watcher = fs.watch(folder);
  fs.writeFileSync(path.join(folder, 'new'), '');
  await once(watcher, 'change');
  watcher.close();
});
