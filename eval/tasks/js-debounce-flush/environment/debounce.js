"use strict";

/** Return a function that calls `fn` when it has not been called for `ms` milliseconds. */
function debounce(fn, ms) {
  let timer = null;
  return function (...args) {
    clearTimeout(timer);
    timer = setTimeout(() => fn.apply(this, args), ms);
  };
}

module.exports = { debounce };
