"use strict";

/** Return the rows of the text, each as a list of strings. */
function parse(text) {
  return text
    .split(/\r?\n/)
    .filter((line) => line)
    .map((line) => (line.match(/("([^"]|"")*"|[^,]+)/g) || []).map((field) => field.replace(/^"|"$/g, "").replace(/""/g, '"')));
}

/** Return the rows as text, with CRLF at the end of each. */
function stringify(rows) {
  return rows.map((row) => row.map((field) => `"${field}"`).join(",") + "\r\n").join("");
}

module.exports = { parse, stringify };
