"""Random edits of a person and of the agent: no line of the person's is lost, and without the hunks the text is as if there were no agent."""

import random

import pytest
from tests.conftest import prove_rest
from tests.fuzz import part

RUN = """
local seed, count = ...
math.randomseed(seed)
vim.o.hidden, vim.o.swapfile = true, false
local hunks = require('sanderling.review.hunks')
local listeners = require('sanderling.editing.listeners')
local regions = require('sanderling.review.regions')
require('sanderling.review')
local undo = require('sanderling.editing.undo')
local api, random = vim.api, math.random
local path = vim.fn.tempname()
local serial = 0
local function fresh(who) serial = serial + 1 return who .. serial end
local function lines(who, n)
  local list = {}
  for i = 1, n do list[i] = fresh(who) end
  return list
end
vim.fn.writefile(lines('base', random(0, 12)), path)
vim.cmd('silent edit ' .. path)
local buf = api.nvim_get_current_buf()
local log = {}

local function text() return api.nvim_buf_get_lines(buf, 0, -1, true) end
local function settle() vim.wait(0, function() return false end) end

--- The text as it was before all hunks.
local function baseline()
  local result, next_row, all = {}, 0, text()
  for _, hunk in ipairs(hunks.list(buf)) do
    vim.list_extend(result, all, next_row + 1, hunk.row)
    vim.list_extend(result, hunk.old)
    next_row = hunk.row + hunk.count
  end
  return vim.list_extend(result, all, next_row + 1)
end

local function check(what, expected, found)
  local function bare(list) -- an empty buffer shows a line
    return vim.tbl_filter(function(line) return line ~= '' end, list)
  end
  if not vim.deep_equal(bare(expected), bare(found)) then
    error(('%s after %s\\nexpected %s\\nfound %s\\nhunks %s'):format(what, table.concat(log, ', '),
      table.concat(expected, ' '), table.concat(found, ' '), vim.inspect(hunks.list(buf))), 0)
  end
end

local states = {} -- by change of the undo tree: the text, its baseline
local function remember() states[vim.fn.changenr()] = { text(), baseline() } end
remember()

local function in_hunk(first, last) -- rows, the last one behind
  for _, hunk in ipairs(hunks.list(buf)) do
    if first < hunk.row + hunk.count and last > hunk.row then return true end
  end
  return false
end

local acts = {}
function acts.person_inserts()
  local row = random(0, #text())
  for _, hunk in ipairs(hunks.list(buf)) do
    if row > hunk.row and row < hunk.row + hunk.count then return end
  end
  local before, new = baseline(), lines('person', random(1, 3))
  api.nvim_buf_set_lines(buf, row, row, true, new)
  settle()
  local after = baseline()
  check('nothing of the baseline went', before, vim.tbl_filter(function(line) return not vim.list_contains(new, line) end, after))
  for _, line in ipairs(new) do
    assert(vim.list_contains(after, line), 'a line of the person is none of the baseline: ' .. table.concat(log, ', '))
  end
end
function acts.person_changes()
  local all = text()
  local row, count = random(0, #all - 1), random(1, 2)
  if row + count > #all or all[1] == '' or in_hunk(row, row + count) then return end
  for _, hunk in ipairs(hunks.list(buf)) do -- a hunk without lines in between is touched
    if hunk.count == 0 and hunk.row > row and hunk.row < row + count then return end
  end
  local before, new = baseline(), lines('person', count)
  api.nvim_buf_set_lines(buf, row, row + count, true, new)
  settle()
  local swap = {}
  for i = 1, count do swap[all[row + i]] = new[i] end
  check('the same lines changed', vim.tbl_map(function(line) return swap[line] or line end, before), baseline())
end
function acts.person_deletes()
  local all = text()
  local row, count = random(0, #all - 1), random(1, 3)
  if row + count > #all then return end
  local outside = {}
  for i = row, row + count - 1 do
    if not in_hunk(i, i + 1) then outside[all[i + 1]] = true end
  end
  local before = baseline()
  api.nvim_buf_set_lines(buf, row, row + count, true, {})
  settle()
  check('only what was outside went', vim.tbl_filter(function(line) return not outside[line] end, before), baseline())
end
function acts.person_edits_inside()
  local list = hunks.list(buf)
  local hunk = list[random(1, math.max(#list, 1))]
  if not hunk or hunk.count == 0 then return end
  local before, row = baseline(), hunk.row + random(0, hunk.count - 1)
  api.nvim_buf_set_lines(buf, row, row + 1, true, lines('inside', random(1, 3)))
  settle()
  check('an edit inside leaves the baseline', before, baseline())
end
function acts.formatter()
  local before = baseline()
  local swapped = {}
  local all = vim.tbl_map(function(line)
    local new = random(4) == 1 and line:gsub('~*$', '%0~') or line
    swapped[line] = new
    return new
  end, text())
  local marked = {}
  for _, hunk in ipairs(hunks.list(buf)) do
    for i = hunk.row + 1, hunk.row + hunk.count do marked[all[i]] = true end
  end
  api.nvim_buf_set_lines(buf, 0, -1, true, all)
  settle()
  check('a formatter leaves what hunks replaced', vim.tbl_map(function(line)
    local new = swapped[line]
    return new and not marked[new] and new or line
  end, before), baseline())
end
function acts.agent()
  local before = baseline()
  local all = text()
  local first = random(0, #all)
  local last = math.min(#all, first + random(0, 4))
  local kept = vim.list_slice(all, first + 1, last)
  local new = lines('agent', random(0, 3))
  if random(3) == 1 then vim.list_extend(new, kept) end
  listeners.changing(buf, fresh('use'), function()
    undo.in_block(buf, false, function() api.nvim_buf_set_lines(buf, first, last, true, new) end)
  end)
  check('the agent leaves the baseline', before, baseline())
end
function acts.reject()
  local list = hunks.list(buf)
  if #list == 0 then return end
  local before = baseline()
  hunks.reject(random(2) == 1 and list or { list[random(1, #list)] }, '')
  check('a rejection leaves the baseline', before, baseline())
end
function acts.reject_all()
  local before = baseline()
  hunks.reject(hunks.list(buf), '')
  check('all rejected is the baseline', before, text())
end
function acts.keep()
  local list = hunks.list(buf)
  if #list == 0 then return end
  local before = text()
  local hunk = list[random(1, #list)]
  hunks.accept({ hunk })
  check('keeping leaves the text', before, text())
  states = {} -- what is kept is so in older states, too
  remember()
end
local function undoing(key)
  return function()
    vim.cmd('silent! normal! ' .. key)
    settle()
    local known = states[vim.fn.changenr()]
    if known then
      check('undo brings the text', known[1], text())
      check('undo brings the baseline', known[2], baseline())
    end
  end
end
acts.undo, acts.redo = undoing('u'), undoing(vim.keycode('<C-r>'))
function acts.save()
  local before = baseline()
  vim.cmd('silent write')
  settle()
  check('a write leaves all', before, baseline())
end
function acts.reload()
  local before = baseline()
  vim.cmd('silent write | silent edit')
  settle()
  check('loading again leaves all', before, baseline())
  states = {}
  remember()
end
function acts.unload()
  local before = baseline()
  vim.cmd('silent write | silent enew | silent bunload ' .. buf)
  settle()
  vim.cmd('silent edit ' .. path)
  buf = api.nvim_get_current_buf()
  settle()
  check('another buffer has all', before, baseline())
  states = {}
  remember()
end

local names = vim.tbl_keys(acts)
table.sort(names)
for _ = 1, count do
  local name = names[random(1, #names)]
  log[#log + 1] = name
  acts[name]()
  remember()
  local seen = {}
  for _, line in ipairs(baseline()) do
    assert(line == '' or not seen[line], ('%s stands twice after %s'):format(line, table.concat(log, ', ')))
    seen[line] = true
  end
end
"""


@pytest.mark.parametrize("seed", prove_rest(range(part(20)), keep=(0,)))
def test_no_interleaving_loses_a_line_of_the_persons_or_changes_the_baseline(child, seed):
    chosen = random.Random(seed)
    for _ in range(8 if seed == 0 else 60):  # files; 40 edits of each
        child.lua(RUN, chosen.randrange(1 << 30), 40)
