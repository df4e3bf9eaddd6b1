--- Taking a proposal out of its buffer temporarily, and putting it back. In between the buffer contains the user's own
--- text, for everything that must not see the proposal: a write, a formatter, someone else's edit.
local M = {}

local api = vim.api
local draw = require('sanderling.review.draw')
local edits = require('sanderling.editing.hunks')
local tracker = require('sanderling.review.tracker')
local hunks = require('sanderling.review.hunks')
local regions = require('sanderling.review.regions')
local views = require('sanderling.editing.views')

---@class (exact) sanderling.proposals.lift.Part
---@field hunk sanderling.review.Hunk its row counts in the text without the proposal
---@field new string[]

---@class (exact) sanderling.proposals.lift.Lifted
---@field buf integer
---@field parts sanderling.proposals.lift.Part[]
---@field text string[] of the buffer without the proposal
---@field views sanderling.editing.Views
---@field is_apart? boolean putting it back starts a new undo block

--- Return the proposed parts as of the last comparison, also accepted ones. Rows count in the text without them.
---@param self? sanderling.review.tracker.Followed
---@return sanderling.proposals.lift.Part[] parts
---@return string[] text without the parts; empty for an empty buffer
function M.last_parts(self)
  local parts, text, next_row = {}, {}, 0
  for _, hunk in ipairs(self and self.hunks or {}) do
    if hunk.source.is_proposed then
      vim.list_extend(text, self.lines, next_row + 1, hunk.row)
      next_row = hunk.row + hunk.count
      local copy = regions.copy({ hunk })[1]
      copy.row = #text
      parts[#parts + 1] = { hunk = copy, new = vim.list_slice(self.lines, hunk.row + 1, next_row) }
      vim.list_extend(text, hunk.old)
    end
  end
  return parts, vim.list_extend(text, self and self.lines or {}, next_row + 1)
end

--- Return the proposed parts, and the text without them.
---@param buf integer
---@return sanderling.proposals.lift.Part[] parts
---@return string[] text
function M.parts(buf)
  return M.last_parts(tracker.settled(buf))
end

--- Return whether the proposal still applies: the old lines are unchanged, and no unreviewed change of the agent's is
--- next to them.
---@param buf integer
---@param proposed sanderling.ProposedHunk[]
---@return boolean
function M.fits(buf, proposed)
  if not api.nvim_buf_is_loaded(buf) or not vim.bo[buf].modifiable then
    return false
  end
  local others = hunks.list(buf)
  for _, part in ipairs(proposed) do
    local row, behind = part.first_line, part.first_line + #part.old
    local lines = api.nvim_buf_get_lines(buf, row, behind, false)
    local is_meant = vim.iter(others):any(function(hunk)
      return hunk.row <= behind and hunk.row + hunk.count >= row
    end)
    if is_meant or #part.old > 0 and not vim.deep_equal(lines, part.old) then
      return false
    end
  end
  return true
end

--- Insert a proposal into the buffer, as hunks of `source`.
---@param buf integer
---@param source sanderling.review.Source
---@param proposed sanderling.ProposedHunk[]
function M.propose(buf, source, proposed)
  local list = vim.tbl_map(function(part)
    return { row = part.first_line, old = part.old, new = part.new }
  end, proposed)
  draw.keeping_views(buf, function()
    hunks.changing(buf, source, function()
      hunks.write(buf, false, list)
    end)
  end)
end

--- Take the proposal out of the buffer.
---@param buf integer
---@return sanderling.proposals.lift.Lifted
function M.lift(buf)
  local parts, text = M.parts(buf)
  local self, list, shift = tracker.follow(buf), {}, 0
  for i, part in ipairs(parts) do
    list[i] = { row = part.hunk.row + shift, old = part.new, new = part.hunk.old }
    shift = shift + #part.new - #part.hunk.old
  end
  local lifted = { buf = buf, parts = parts, text = text, views = views.save(buf) }
  self.hunks = vim.tbl_filter(function(hunk)
    return not hunk.source.is_proposed
  end, self.hunks)
  hunks.write(buf, true, list)
  tracker.settle(self)
  return lifted
end

--- Return where the position before line `row` has moved after `parts` changed.
---@param parts [integer, integer, integer, integer][]
---@param row integer
---@return integer
local function follow(parts, row)
  local shift = 0
  for _, part in ipairs(parts) do
    local first, count, new_first, new_count = part[1] - 1, part[2], part[3] - 1, part[4]
    if row <= first then
      break
    elseif row < first + count then
      return new_first + math.min(row - first, new_count)
    end
    shift = shift + new_count - count
  end
  return row + shift
end

--- Put a proposal back where it was, whatever has changed since.
---@param lifted sanderling.proposals.lift.Lifted
function M.lay(lifted)
  local buf = lifted.buf
  if not api.nvim_buf_is_loaded(buf) then
    return
  end
  local self = tracker.follow(buf)
  tracker.settle(self)
  local moved = edits.differences(lifted.text, self.lines)
  local list, free_from, shift = {}, 0, 0
  for i, part in ipairs(lifted.parts) do
    local hunk = part.hunk
    local row = math.max(free_from, follow(moved, hunk.row))
    free_from = math.max(row, follow(moved, hunk.row + #hunk.old))
    hunk.old = vim.list_slice(self.lines, row + 1, free_from)
    hunk.row, hunk.count = row + shift, #part.new
    list[i] = { row = row, old = hunk.old, new = part.new }
    shift = shift + #part.new - #hunk.old
  end
  hunks.write(buf, not lifted.is_apart, list)
  tracker.settle(self)
  for _, part in ipairs(lifted.parts) do
    table.insert(self.hunks, part.hunk)
  end
  table.sort(self.hunks, function(a, b)
    return a.row < b.row
  end)
  self.states[self.nr] = regions.copy(self.hunks)
  views.restore(buf, lifted.views)
  tracker.tell(buf)
end

--- Run `fn` on the user's own text.
---@generic T
---@param buf integer
---@param fn fun(): T
---@return T
function M.aside(buf, fn)
  local lifted = M.lift(buf)
  local ok, value = pcall(fn)
  local modified = api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified
  M.lay(lifted)
  if api.nvim_buf_is_loaded(buf) then
    vim.bo[buf].modified = modified
  end
  if not ok then
    error(value, 0)
  end
  return value
end

--- Drop the hunks of `source`: its text is no longer a proposal.
---@param buf integer
---@param source sanderling.review.Source
function M.forget(buf, source)
  local function is_other(hunk)
    return hunk.source ~= source
  end
  for name in pairs(tracker.unloaded) do
    tracker.filter_unloaded(name, is_other)
  end
  local self = tracker.settled(buf)
  if not self then
    return
  end
  self.hunks = vim.tbl_filter(is_other, self.hunks)
  for nr, known in pairs(self.states) do
    self.states[nr] = vim.tbl_filter(is_other, known)
  end
  tracker.stop_unless_needed(self)
  tracker.tell(buf)
end

return M
