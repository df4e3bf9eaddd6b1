"use strict";
const assert = require("node:assert");
const { parse, stringify } = require(process.cwd() + "/csv.js");

const cases = [
  ["", []],
  ["a,b\n", [["a", "b"]]],
  ["a,b", [["a", "b"]]],
  ["a,\r\n,b\r\n", [["a", ""], ["", "b"]]],
  [",", [["", ""]]],
  ["\ufeffname,x\n1,2", [["name", "x"], ["1", "2"]]],
  ['"x\ny",z\n', [["x\ny", "z"]]],
  ['"x\r\ny",\r\n', [["x\r\ny", ""]]],
  ['"a ""b""",c', [['a "b"', "c"]]],
  ['"",b\n', [["", "b"]]],
  ['""\n', [[""]]],
  ['"a,b",c', [["a,b", "c"]]],
  [" a , b ", [[" a ", " b "]]],
  ['a"b,c', [['a"b', "c"]]],
  ["é😀,ü", [["é😀", "ü"]]],
];
for (const [text, rows] of cases) assert.deepStrictEqual(parse(text), rows, JSON.stringify(text));
assert.strictEqual(stringify([["a", "b c", ""]]), "a,b c,\r\n");
assert.strictEqual(stringify([['a"b', "c,d", "e\nf"]]), '"a""b","c,d","e\nf"\r\n');
assert.strictEqual(stringify([]), "");
let seed = 42;
const random = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
for (let turn = 0; turn < 500; turn += 1) {
  const width = 1 + random(4);
  const rows = Array.from({ length: 1 + random(4) }, () =>
    Array.from({ length: width }, () => Array.from({ length: random(4) }, () => 'a,"\n\r é'[random(7)]).join("")),
  );
  assert.deepStrictEqual(parse(stringify(rows)), rows, JSON.stringify(rows));
}
console.log("passed");
