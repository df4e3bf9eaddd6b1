--- Hunks: the agent's unreviewed changes in file buffers, and the changes that it proposes.
---
--- The agent's changes are those made inside `M.changing`. All other changes are the user's: typing, a formatter, a
--- reload. A hunk that was accepted stays accepted, even if undo returns to a state before that.
local M = {}

local api = vim.api
local changes = require('sanderling.editing.changes')
local edits = require('sanderling.editing.hunks')
local tracker = require('sanderling.review.tracker')
local log = require('sanderling.host.log')
local regions = require('sanderling.review.regions')
local undo = require('sanderling.editing.undo')

---@type fun(hunks: sanderling.review.Hunk[], is_kept: boolean, reason: string)[]
local on_decision = {}

M.on_change = tracker.on_change

--- Call `fn` when the user accepts or rejects hunks of one buffer, before anything is changed: the buffer still
--- contains the lines in question.
---@param fn fun(hunks: sanderling.review.Hunk[], is_kept: boolean, reason: string)
function M.on_decision(fn)
  on_decision[#on_decision + 1] = fn
end

-- changes by the agent ------------------------------------------------------------------------------------------------

--- Report that hunks of a buffer have come or gone.
---@param self sanderling.review.tracker.Followed
local function finish(self)
  tracker.stop_unless_needed(self)
  tracker.tell(self.buf)
end

--- Run `fn`, then call `settle` if the buffer is still tracked.
---@param self? sanderling.review.tracker.Followed
---@param fn fun() its errors are passed on
---@param settle fun(self: sanderling.review.tracker.Followed)
local function run(self, fn, settle)
  local ok, err = pcall(fn)
  if self and tracker.by_buf[self.buf] == self and api.nvim_buf_is_loaded(self.buf) then
    settle(self)
    finish(self)
  end
  if not ok then
    error(err, 0)
  end
end

--- Run `fn`. What it changes in the buffer becomes hunks, or extends the hunks that it touches.
---@param buf integer loaded
---@param source sanderling.review.Source
---@param fn fun() its errors are passed on
function M.changing(buf, source, fn)
  local self = tracker.follow(buf)
  tracker.settle(self)
  local had_end, was_empty = vim.bo[buf].endofline, #self.lines == 0
  run(self, fn, function()
    tracker.settle(self, source)
    local count = #self.lines
    if vim.bo[buf].endofline ~= had_end and count > 0 and not was_empty then
      local last = self.hunks[#self.hunks]
      if not last or last.row + last.count < count then
        last = regions.new(buf, count - 1, 1, { self.lines[count] }, source)
        table.insert(self.hunks, last)
      end
      last.had_end = had_end
      tracker.drop_undone(self)
      self.states[self.nr] = regions.copy(self.hunks)
    end
  end)
end

--- Run `fn`, which undoes or redoes changes of the agent in the buffer. It makes no hunks.
---@param buf integer loaded
---@param fn fun() its errors are passed on
function M.restoring(buf, fn)
  run(tracker.settled(buf), fn, function(self)
    tracker.settle(self, nil, true)
  end)
end

--- Make hunks for a buffer that contains text of the agent's without having hunks yet.
---@param buf integer loaded
---@param old string[] the text before the agent's changes, but with the user's changes
---@param source sanderling.review.Source
---@param is_new? boolean the agent created the file
function M.add(buf, old, source, is_new)
  local self = tracker.follow(buf)
  tracker.settle(self)
  if #self.hunks == 0 then
    for _, part in ipairs(edits.differences(old, self.lines)) do
      local from, count, new_from, new_count = unpack(part)
      local lines = vim.list_slice(old, from, from + count - 1)
      local hunk = regions.new(buf, new_from - 1, new_count, lines, source)
      hunk.made_file = is_new
      table.insert(self.hunks, hunk)
    end
    self.states[self.nr] = regions.copy(self.hunks)
  end
  finish(self)
end

---@param hunks sanderling.review.Hunk[]
---@return sanderling.review.Hunk[] without the accepted hunks of a proposal
local function undecided(hunks)
  return vim.tbl_filter(function(hunk)
    return not hunk.is_kept
  end, hunks)
end

-- queries -------------------------------------------------------------------------------------------------------------

--- Return the hunks of a buffer, in order. Do not change them. Their rows are valid until the text changes.
---@param buf integer
---@return sanderling.review.Hunk[]
function M.list(buf)
  local self = tracker.settled(buf)
  return self and undecided(self.hunks) or {}
end

--- Return the hunk that contains a line. For a pure deletion that is the line before or after it.
---@param buf integer
---@param row integer from 0
---@return sanderling.review.Hunk?
function M.at(buf, row)
  local beside
  for _, hunk in ipairs(M.list(buf)) do
    if row >= hunk.row and row < hunk.row + hunk.count then
      return hunk
    elseif hunk.count == 0 and (row == hunk.row or row == hunk.row - 1) then
      beside = beside or hunk
    end
  end
  return beside
end

---@param hunk sanderling.review.Hunk
---@return string[]
function M.text_of(hunk)
  local self = tracker.settled(hunk.buf)
  return self and vim.list_slice(self.lines, hunk.row + 1, hunk.row + hunk.count) or {}
end

--- Return the buffers with hunks.
---@return integer[]
function M.buffers()
  local bufs = {}
  for buf, self in pairs(tracker.by_buf) do
    if #self.hunks > 0 then
      bufs[#bufs + 1] = buf
    end
  end
  table.sort(bufs)
  return bufs
end

---@return table<string, integer>
function M.unloaded()
  return vim.tbl_map(function(kept)
    return #kept.hunks
  end, tracker.unloaded)
end

---@alias sanderling.review.hunks.Count fun(is_meant?: fun(changed: { source: sanderling.review.Source }): boolean): integer, integer

---@type sanderling.review.hunks.Count
local function count_closed()
  return 0, 0
end

---@param count sanderling.review.hunks.Count of the changes in files that have not been opened since
function M.register(count)
  count_closed = count
end

--- Count the hunks, and the files that have hunks.
---@param is_meant? fun(hunk: { source: sanderling.review.Source }): boolean
---@return integer hunks
---@return integer files
function M.counts(is_meant)
  local hunk_count, file_count = count_closed(is_meant)
  local function count(hunks)
    hunks = undecided(hunks)
    local here = is_meant and #vim.tbl_filter(is_meant, hunks) or #hunks
    hunk_count, file_count = hunk_count + here, file_count + (here > 0 and 1 or 0)
  end
  for _, self in pairs(tracker.by_buf) do
    count(self.hunks)
  end
  for _, kept in pairs(tracker.unloaded) do
    count(kept.hunks)
  end
  return hunk_count, file_count
end

-- decisions -----------------------------------------------------------------------------------------------------------

--- Return those of `hunks` that still exist, by buffer and in order.
---@param hunks sanderling.review.Hunk[]
---@return table<integer, sanderling.review.Hunk[]>
function M.by_buffer(hunks)
  local wanted, by_buf = {}, {}
  for _, hunk in ipairs(hunks) do
    wanted[hunk.id], by_buf[hunk.buf] = true, {}
  end
  for buf in pairs(by_buf) do
    by_buf[buf] = vim.tbl_filter(function(hunk)
      return wanted[hunk.id]
    end, M.list(buf))
  end
  return by_buf
end

---@param hunks sanderling.review.Hunk[] of one buffer
---@param is_kept boolean
---@param reason string
local function tell_decision(hunks, is_kept, reason)
  for _, fn in ipairs(on_decision) do
    log.guarded(fn, hunks, is_kept, reason)
  end
end

---@param hunks sanderling.review.Hunk[]
---@param ids table<integer, true>
---@return sanderling.review.Hunk[] without those, and without hunks that have absorbed them
local function without(hunks, ids)
  return vim.tbl_filter(function(hunk)
    return not ids[hunk.id]
  end, hunks)
end

--- Accept hunks: their lines become the baseline, and undo does not restore the hunks. A proposal is not on the disk
--- yet, so its hunks keep their old lines until the question is answered.
---@param hunks sanderling.review.Hunk[]
function M.accept(hunks)
  for buf, list in pairs(M.by_buffer(hunks)) do
    local self = tracker.by_buf[buf]
    if self and #list > 0 then
      tell_decision(list, true, '')
      local ids = {}
      for _, hunk in ipairs(list) do
        hunk.is_kept = hunk.source.is_proposed
        ids = hunk.is_kept and ids or vim.tbl_extend('keep', ids, hunk.ids)
      end
      self.hunks = without(self.hunks, ids)
      for nr, known in pairs(self.states) do
        self.states[nr] = without(known, ids)
      end
      self.states[self.nr] = regions.copy(self.hunks)
      finish(self)
    end
  end
end

--- Drop the session's hunks of a file: there is nothing left to review, or the file is gone.
---@param session_id string
---@param path string absolute, no link
function M.settle(session_id, path)
  local function is_other(hunk)
    return hunk.source.is_proposed or hunk.source.session_id ~= session_id
  end
  for name in pairs(tracker.unloaded) do
    if vim.fn.resolve(name) == path then
      tracker.filter_unloaded(name, is_other)
    end
  end
  for _, buf in ipairs(M.buffers()) do
    if vim.fn.resolve(api.nvim_buf_get_name(buf)) == path then
      M.accept(vim.tbl_filter(function(hunk)
        return not is_other(hunk)
      end, M.list(buf)))
    end
  end
end

--- Apply edits in one undo block, preserving marks, selection and jump list where the text remains.
---@param buf integer
---@param joins boolean undo does not stop before this block
---@param list sanderling.editing.Edit[] in order
function M.write(buf, joins, list)
  undo.in_block(buf, joins, function()
    undo.keeping_selection(buf, function()
      changes.with_modifiers('keepjumps', function()
        changes.apply(buf, edits.narrow(list))
      end)
    end)
  end)
end

--- Restore the lines that hunks replaced, in one undo block.
---@param self sanderling.review.tracker.Followed
---@param hunks sanderling.review.Hunk[]
local function put_back(self, hunks)
  local buf, list, ids = self.buf, {}, {}
  for i, hunk in ipairs(hunks) do
    list[i] = { row = hunk.row, old = M.text_of(hunk), new = hunk.old }
    ids[hunk.id] = true
  end
  M.write(buf, false, list)
  for _, hunk in ipairs(hunks) do
    if hunk.had_end ~= nil then
      vim.bo[buf].endofline = hunk.had_end
    end
  end
  self.hunks = without(self.hunks, ids) -- the restored lines belong to the baseline
  tracker.settle(self)
end

--- Reject hunks: restore the lines they replaced, in one undo block per buffer. Undo restores the hunks, too.
---@param hunks sanderling.review.Hunk[]
---@param reason? string
function M.reject(hunks, reason)
  for buf, list in pairs(M.by_buffer(hunks)) do
    local self = tracker.by_buf[buf]
    if self and #list > 0 then
      if not vim.bo[buf].modifiable then
        local name = vim.fs.basename(api.nvim_buf_get_name(buf))
        error(("%s is locked in Neovim ('nomodifiable')."):format(name), 0)
      end
      tell_decision(list, false, reason or '')
      put_back(self, list)
      tracker.tell(buf)
    end
  end
end

return M
