"use strict";
const assert = require("node:assert");

// Time only passes when the checks say so.
let now = 0;
let timers = [];
global.setTimeout = (fn, ms, ...args) => {
  const timer = { at: now + (ms || 0), fn, args };
  timers.push(timer);
  return timer;
};
global.clearTimeout = (timer) => {
  timers = timers.filter((each) => each !== timer);
};
Date.now = () => now;
function pass(ms) {
  const end = now + ms;
  for (;;) {
    const [next] = timers.filter((each) => each.at <= end).sort((a, b) => a.at - b.at);
    if (!next) break;
    now = next.at;
    global.clearTimeout(next);
    next.fn(...next.args);
  }
  now = end;
}

const { debounce } = require(process.cwd() + "/debounce.js");
let calls = [];
function fn(...args) {
  calls.push([this && this.name, ...args]);
  return "result " + args[0];
}
function seen() {
  const found = calls;
  calls = [];
  return found;
}
const one = { name: "one" };
const two = { name: "two" };

let add = debounce(fn, 100);
add.call(one, 1);
pass(99);
add.call(two, 2, 3);
pass(99);
assert.deepStrictEqual(seen(), []);
pass(1);
assert.deepStrictEqual(seen(), [["two", 2, 3]]);
add.call(one, 4);
add.cancel();
pass(1000);
assert.deepStrictEqual(seen(), []);
assert.strictEqual(add.flush(), undefined);
add.call(one, 5);
add.call(two, 6);
assert.strictEqual(add.flush(), "result 6");
assert.deepStrictEqual(seen(), [["two", 6]]);
pass(1000);
assert.deepStrictEqual(seen(), []);
assert.strictEqual(add.flush(), undefined);
add.call(one, 0);
assert.strictEqual(add.flush(), "result 0");
seen();

add = debounce(fn, 100, { leading: true });
add.call(one, 1);
assert.deepStrictEqual(seen(), [["one", 1]]);
pass(1000);
assert.deepStrictEqual(seen(), []);
add.call(one, 1);
pass(50);
add.call(two, 2);
pass(50);
add.call(one, 3);
pass(99);
assert.deepStrictEqual(seen(), [["one", 1]]);
pass(1);
assert.deepStrictEqual(seen(), [["one", 3]]);
pass(100);
add.call(two, 4);
assert.deepStrictEqual(seen(), [["two", 4]]);
assert.strictEqual(add.flush(), undefined);
add.cancel();
add.call(two, 5);
assert.deepStrictEqual(seen(), [["two", 5]]);
add.call(one, 6);
assert.strictEqual(add.flush(), "result 6");
assert.deepStrictEqual(seen(), [["one", 6]]);
pass(1000);
assert.deepStrictEqual(seen(), []);
add = debounce(() => {
  throw new Error("no");
}, 10);
add();
assert.throws(() => add.flush());
assert.strictEqual(add.flush(), undefined);
console.log("passed");
