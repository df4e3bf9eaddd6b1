--- Tracking of a buffer's text, so that its hunks move with their lines.
---
--- Neovim reports which lines have changed. They are compared with a copy of the previous text: a formatter that
--- replaces the whole text changes no more than what differs. Undo and redo restore the hunks together with the text,
--- whoever made the change, because the hunks of each state of the undo tree are recorded. The hunks of an unloaded
--- buffer wait until its file is loaded again.
local M = {}

local api = vim.api
local edits = require('sanderling.editing.hunks')
local find = require('sanderling.editing.find')
local log = require('sanderling.host.log')
local regions = require('sanderling.review.regions')

local MAX_STATES = 200 -- recorded for each buffer's undo tree

---@class (exact) sanderling.review.tracker.Dirt changes since the text was last compared
---@field first integer
---@field last integer exclusive, in the previous text
---@field new_last integer exclusive, in the current text

---@class (exact) sanderling.review.tracker.Followed
---@field buf integer
---@field lines string[] the text when it was last compared; empty for an empty buffer
---@field hunks sanderling.review.Hunk[] in order
---@field dirt? sanderling.review.tracker.Dirt
---@field nr integer the undo state of that text
---@field states table<integer, sanderling.review.Hunk[]> by undo state
---@field is_due boolean a comparison is scheduled
---@field is_reloaded boolean all lines may have changed

---@type table<integer, sanderling.review.tracker.Followed> by buffer
M.by_buf = {}
---@type table<string, { lines: string[], hunks: sanderling.review.Hunk[] }> of unloaded buffers, by name
M.unloaded = {}

---@type fun(buf: integer)[]
local listeners = {}

--- Call `fn` whenever the hunks of a buffer, or lines in them, may have changed.
---@param fn fun(buf: integer)
function M.on_change(fn)
  listeners[#listeners + 1] = fn
end

---@param buf integer
function M.tell(buf)
  for _, fn in ipairs(listeners) do
    log.guarded(fn, buf)
  end
end

-- tracking a buffer ---------------------------------------------------------------------------------------------------

---@param buf integer
---@return integer lines of its text, 0 for an empty buffer
local function count_lines(buf)
  return find.is_empty(buf) and 0 or api.nvim_buf_line_count(buf)
end

---@param buf integer
---@return integer its state in the undo tree
local function undo_state(buf)
  return api.nvim_get_current_buf() == buf and vim.fn.changenr()
    or api.nvim_buf_call(buf, vim.fn.changenr)
end

---@param self sanderling.review.tracker.Followed
---@return boolean there are hunks, or undo could restore some
local function has_any(self)
  return #self.hunks > 0
    or vim.iter(pairs(self.states)):any(function(_, hunks)
      return #hunks > 0
    end)
end

--- Return the hunks recorded for an undo state.
---
--- When a file is read again the tree starts over: its first state has a number while changes are added, but undoing
--- them all leads to state 0.
---@param self sanderling.review.tracker.Followed
---@param nr integer
---@return sanderling.review.Hunk[]?
local function known_in(self, nr)
  if nr == 0 and not self.states[0] then
    nr = math.huge
    for each in pairs(self.states) do
      nr = math.min(nr, each)
    end
  end
  local known = self.states[nr]
  local last = known and known[#known]
  return not (last and last.row + last.count > #self.lines) and known or nil
end

--- Restore the hunks recorded for the current undo state, if it has been visited before. Then record them.
---@param self sanderling.review.tracker.Followed
---@param is_agents boolean
local function follow_undo(self, is_agents)
  local nr = undo_state(self.buf)
  if self.is_reloaded and nr == self.nr then -- reloaded without an undo block: the tree has started over
    self.states = { [nr] = {} }
  end
  self.is_reloaded = false
  local known = nr ~= self.nr and not is_agents and known_in(self, nr)
  if known then
    self.hunks = regions.copy(known)
  end
  self.nr, self.states[nr] = nr, regions.copy(self.hunks)
  self.states[nr - MAX_STATES] = nil
end

---@param self sanderling.review.tracker.Followed
---@param dirt sanderling.review.tracker.Dirt
---@param new string[]
---@return sanderling.review.Change[]
local function changes_of(self, dirt, new)
  local old = vim.list_slice(self.lines, dirt.first + 1, dirt.last)
  return vim.tbl_map(function(part)
    return { row = dirt.first + part[1] - 1, count = part[2], new_count = part[4] }
  end, edits.differences(old, new))
end

---@param lines string[]
---@param dirt sanderling.review.tracker.Dirt
---@param new string[]
---@return string[]
local function spliced(lines, dirt, new)
  if dirt.last - dirt.first == #new then
    return table.move(new, 1, #new, dirt.first + 1, lines)
  end
  local result = vim.list_slice(lines, 1, dirt.first)
  vim.list_extend(result, new)
  return vim.list_extend(result, lines, dirt.last + 1)
end

---@param self sanderling.review.tracker.Followed
function M.drop_undone(self)
  local has_end = vim.bo[self.buf].endofline
  self.hunks = vim.tbl_filter(function(hunk)
    local is_end_same = hunk.had_end == nil or hunk.had_end == has_end
    return not (is_end_same and regions.is_undone(hunk, self.lines))
  end, self.hunks)
end

--- Compare the text with its copy and update the hunks.
---@param self sanderling.review.tracker.Followed
---@param source? sanderling.review.Source of a change by the agent; nil: someone else changed the text
---@param is_restored? boolean changes of the agent were undone or redone
function M.settle(self, source, is_restored)
  local dirt, buf = self.dirt, self.buf
  if not dirt or not api.nvim_buf_is_loaded(buf) then
    return
  end
  self.dirt = nil
  local count = count_lines(buf)
  local is_exact = not self.is_reloaded and #self.lines > 0 and count > 0
  if not is_exact or #self.lines - dirt.last ~= count - dirt.new_last then
    dirt = { first = 0, last = #self.lines, new_last = count }
  end
  local new = count > 0 and api.nvim_buf_get_lines(buf, dirt.first, dirt.new_last, true) or {}
  local list = changes_of(self, dirt, new)
  local is_back = is_restored or self.is_reloaded and not source
  local restored = is_back and regions.restore(self.hunks, self.lines, list) or nil
  for i = #list, 1, -1 do
    if source then
      regions.add(self.hunks, self.lines, list[i], source, buf)
    elseif not restored then
      regions.follow(self.hunks, self.lines, list[i])
    end
  end
  self.lines = spliced(self.lines, dirt, new)
  self.hunks = restored and restored(self.lines) or self.hunks
  M.drop_undone(self)
  follow_undo(self, source ~= nil)
end

--- Adopt the undo tree from before a proposal, whose text the buffer has again.
---@param self sanderling.review.tracker.Followed
---@param last integer last state of that tree
---@param hunks sanderling.review.Hunk[] of the current text
function M.exchange_tree(self, last, hunks)
  for nr in pairs(self.states) do
    self.states[nr] = nr <= last and self.states[nr] or nil
  end
  M.settle(self)
  self.hunks, self.nr = hunks, undo_state(self.buf)
  self.states[self.nr] = regions.copy(hunks)
end

---@param self sanderling.review.tracker.Followed
function M.stop_unless_needed(self)
  if M.by_buf[self.buf] == self and not has_any(self) then
    M.by_buf[self.buf] = nil
  end
end

local key_ns = api.nvim_create_namespace('sanderling_hunk_keys')

--- Compare the text before the next key, even if keys follow without a pause, as in a macro: the comparison could not
--- tell an undo from a change made right after it.
local function settle_before_keys()
  vim.on_key(function()
    for _, self in pairs(M.by_buf) do
      log.guarded(M.settle, self)
    end
  end, key_ns)
end

---@param self sanderling.review.tracker.Followed
local function settle_soon(self)
  if self.is_due then
    return
  end
  self.is_due = true
  settle_before_keys()
  vim.schedule(function()
    self.is_due = false
    vim.on_key(nil, key_ns)
    if M.by_buf[self.buf] == self then
      M.settle(self)
      M.stop_unless_needed(self)
      M.tell(self.buf)
    end
  end)
end

---@param self sanderling.review.tracker.Followed
---@param first integer
---@param last integer
---@param new_last integer
local function soil(self, first, last, new_last)
  local dirt = self.dirt or { first = first, last = last, new_last = last }
  local behind = math.max(0, last - dirt.new_last)
  self.dirt = {
    first = math.min(dirt.first, first),
    last = dirt.last + behind,
    new_last = dirt.new_last + behind + new_last - last,
  }
  settle_soon(self)
end

---@param self sanderling.review.tracker.Followed
local function soil_all(self)
  self.is_reloaded = true
  self.dirt = { first = 0, last = 0, new_last = 0 }
  settle_soon(self)
end

--- Keep the hunks of a buffer that is unloaded.
---@param self sanderling.review.tracker.Followed
local function put_away(self)
  if M.by_buf[self.buf] == self then
    M.by_buf[self.buf] = nil
    local name = api.nvim_buf_is_valid(self.buf) and api.nvim_buf_get_name(self.buf) or ''
    if name ~= '' and #self.hunks > 0 then
      M.unloaded[name] = { lines = self.lines, hunks = self.hunks }
    end
    M.tell(self.buf)
  end
end

--- Drop hunks of an unloaded buffer unless `is_left` returns true.
---@param name string
---@param is_left fun(hunk: sanderling.review.Hunk): boolean
function M.filter_unloaded(name, is_left)
  local kept = M.unloaded[name]
  kept.hunks = vim.tbl_filter(is_left, kept.hunks)
  M.unloaded[name] = #kept.hunks > 0 and kept or nil
end

---@param buf integer
---@return sanderling.review.tracker.Followed
function M.follow(buf)
  if M.by_buf[buf] then
    return M.by_buf[buf]
  end
  local self = {
    buf = buf,
    lines = find.is_empty(buf) and {} or api.nvim_buf_get_lines(buf, 0, -1, true),
    hunks = {},
    nr = undo_state(buf),
    states = {},
    is_due = false,
    is_reloaded = false,
  }
  self.states[self.nr] = {}
  M.by_buf[buf] = self
  api.nvim_buf_attach(buf, false, {
    on_lines = function(_, _, _, first, last, new_last)
      if M.by_buf[buf] ~= self then
        return true
      end
      soil(self, first, last, new_last)
    end,
    on_reload = function()
      soil_all(self)
    end,
    on_detach = function()
      put_away(self)
    end,
  })
  return self
end

api.nvim_create_autocmd({ 'BufReadPost', 'BufNewFile' }, {
  group = api.nvim_create_augroup('sanderling_hunks', {}),
  desc = 'Agent: restore the hunks of a file that is loaded again',
  callback = function(args)
    local name = api.nvim_buf_get_name(args.buf)
    local kept = M.unloaded[name]
    if kept and not M.by_buf[args.buf] then
      M.unloaded[name] = nil
      local self = M.follow(args.buf)
      self.lines, self.hunks = kept.lines, kept.hunks
      for _, hunk in ipairs(self.hunks) do
        hunk.buf = args.buf
      end
      soil_all(self)
    end
  end,
})

---@param buf integer
---@return sanderling.review.tracker.Followed?
function M.settled(buf)
  local self = M.by_buf[buf]
  if self then
    M.settle(self)
  end
  return self
end

return M
