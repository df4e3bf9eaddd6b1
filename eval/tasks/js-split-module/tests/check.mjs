import assert from "node:assert";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const here = process.cwd();
// Whichever file is loaded first, both work.
for (const first of ["queue.js", "priority-queue.js"]) {
  const code = `const one = await import(${JSON.stringify(`${here}/${first}`)}); console.log(new one.PriorityQueue().add(1, 2).add(3, 1).take());`;
  assert.strictEqual(execFileSync(process.execPath, ["--input-type=module", "-e", code], { encoding: "utf8" }), "3\n");
}
const all = await import(`${here}/queue.js`);
const own = await import(`${here}/priority-queue.js`);
assert.deepStrictEqual(Object.keys(all).sort(), ["PriorityQueue", "Queue"]);
assert.strictEqual(all.PriorityQueue, own.PriorityQueue);
assert(new own.PriorityQueue() instanceof all.Queue);
const queue = new all.PriorityQueue().add("a", 1).add("b", 1).add("c");
assert.deepStrictEqual([queue.take(), queue.take(), queue.take(), queue.take()], ["c", "a", "b", undefined]);
assert.strictEqual(new all.Queue().add(1).add(2).take(), 1);
const text = (name) => readFileSync(`${here}/${name}`, "utf8");
assert(text("priority-queue.js").includes("Smaller numbers come first") && text("priority-queue.js").includes("class PriorityQueue"));
assert(!text("queue.js").includes("class PriorityQueue") && !text("queue.js").includes("Smaller numbers"));
assert(text("bin/demo.mjs").includes('"../priority-queue.js"'));
console.log("passed");
