"use strict";
const assert = require("node:assert");
const { debounce } = require("./debounce");

const calls = [];
const add = debounce((x) => calls.push(x), 10);
add(1);
add(2);
setTimeout(() => {
  assert.deepStrictEqual(calls, [2]);
  console.log("ok");
}, 100);
