--- Regions: the positions of a text's hunks, and how a change of lines moves, extends or joins them. This module does
--- not use Neovim.
---
--- A hunk consists of some lines of the text and the lines that they replaced. This defines a baseline without storing
--- a copy: the text, with the old lines in place of each hunk's. A user's change outside the hunks goes into the text
--- and the baseline alike; a change inside a hunk becomes part of it. A change across a hunk's border is divided there
--- if it only removes lines or replaces them one by one. Otherwise there is no way to tell which new line belongs to
--- which side, so the hunk grows by the change: rejecting it restores all of those lines.
local M = {}

---@class (exact) sanderling.review.Source who made the change
---@field session_id string
---@field tool_use_id string
---@field turn string the id of its prompt
---@field is_proposed? boolean not on the disk yet: its question is open

---@class (exact) sanderling.review.Hunk
---@field id integer stays the same when undo restores the hunk
---@field ids table<integer, true> its own ids, and the ids of absorbed hunks
---@field buf integer
---@field row integer of its first line, from 0; for a pure deletion, of the line after it
---@field count integer number of its lines; 0 for a pure deletion
---@field old string[] the replaced lines
---@field is_kept? boolean proposed and accepted, but its question is still open
---@field had_end? boolean the old 'endofline', if the hunk changes it
---@field made_file? boolean the agent created the file
---@field source sanderling.review.Source

---@class (exact) sanderling.review.Change a replacement of lines
---@field row integer in the text before
---@field count integer
---@field new_count integer

local last_id = 0

---@param buf integer
---@param row integer
---@param count integer
---@param old string[]
---@param source sanderling.review.Source
---@return sanderling.review.Hunk
function M.new(buf, row, count, old, source)
  last_id = last_id + 1
  local ids = { [last_id] = true }
  return { id = last_id, ids = ids, buf = buf, row = row, count = count, old = old, source = source }
end

--- Return whether the change reaches into the hunk. Lines inserted at its borders do not.
---@param hunk sanderling.review.Hunk
---@param change sanderling.review.Change
---@return boolean
local function overlaps(hunk, change)
  return change.row < hunk.row + hunk.count and change.row + change.count > hunk.row
end

--- Return whether a change of the agent's overlaps or adjoins the hunk, so that both are joined. Proposals join only
--- proposals, unless they overlap.
---@param hunk sanderling.review.Hunk
---@param change sanderling.review.Change
---@param source sanderling.review.Source
---@return boolean
local function touches(hunk, change, source)
  local is_alike = (hunk.source.is_proposed or false) == (source.is_proposed or false)
  return overlaps(hunk, change)
    or is_alike and change.row <= hunk.row + hunk.count and change.row + change.count >= hunk.row
end

---@param list string[]
---@param lines string[] the text before
---@param first integer
---@param behind integer
local function add_lines(list, lines, first, behind)
  for row = first, behind - 1 do
    list[#list + 1] = lines[row + 1]
  end
end

--- Join the hunks from `first` to `last` and the change into one hunk.
---@param hunks sanderling.review.Hunk[]
---@param first integer
---@param last integer
---@param lines string[] the text before
---@param change sanderling.review.Change
---@return sanderling.review.Hunk
local function join(hunks, first, last, lines, change)
  local joined, final = hunks[first], hunks[last]
  local row = math.min(joined.row, change.row)
  local behind = math.max(final.row + final.count, change.row + change.count)
  local old, next_row = {}, row
  for i = first, last do
    local hunk = hunks[i]
    add_lines(old, lines, next_row, hunk.row)
    vim.list_extend(old, hunk.old)
    next_row = hunk.row + hunk.count
    joined.ids = vim.tbl_extend('keep', joined.ids, hunk.ids)
    joined.is_kept = joined.is_kept and hunk.is_kept
    if joined.had_end == nil then
      joined.had_end = hunk.had_end
    end
  end
  add_lines(old, lines, next_row, behind)
  joined.row, joined.old = row, old
  joined.count = behind - row + change.new_count - change.count
  for _ = first + 1, last do
    table.remove(hunks, first + 1)
  end
  return joined
end

---@param hunks sanderling.review.Hunk[]
---@param is_meant fun(hunk: sanderling.review.Hunk): boolean
---@return integer? first
---@return integer? last
local function range_of(hunks, is_meant)
  local first, last
  for i, hunk in ipairs(hunks) do
    if is_meant(hunk) then
      first, last = first or i, i
    end
  end
  return first, last
end

--- Remove lines. Hunks keep their remaining lines.
---@param hunks sanderling.review.Hunk[]
---@param change sanderling.review.Change
local function take_out(hunks, change)
  local function place_of(row)
    return row <= change.row and row or math.max(change.row, row - change.count)
  end
  for _, hunk in ipairs(hunks) do
    local row, behind = place_of(hunk.row), place_of(hunk.row + hunk.count)
    hunk.row, hunk.count = row, behind - row
  end
end

---@param hunks sanderling.review.Hunk[]
---@param from integer index
---@param shift integer
local function move(hunks, from, shift)
  for i = from, #hunks do
    hunks[i].row = hunks[i].row + shift
  end
end

--- Return the index of the first hunk after the change.
---@param hunks sanderling.review.Hunk[]
---@param change sanderling.review.Change
---@return integer
local function first_behind(hunks, change)
  for i, hunk in ipairs(hunks) do
    if hunk.row >= change.row + change.count then
      return i
    end
  end
  return #hunks + 1
end

--- Apply a change that is not the agent's.
---@param hunks sanderling.review.Hunk[] in order
---@param lines string[] the text before
---@param change sanderling.review.Change
function M.follow(hunks, lines, change)
  local shift = change.new_count - change.count
  if shift == 0 then
    return
  elseif change.new_count == 0 then
    take_out(hunks, change)
    return
  end
  local first, last = range_of(hunks, function(hunk)
    return overlaps(hunk, change)
  end)
  if first then
    join(hunks, first, last --[[@as integer]], lines, change)
    move(hunks, first + 1, shift)
  else
    move(hunks, first_behind(hunks, change), shift)
  end
end

--- Apply a change of the agent's.
---@param hunks sanderling.review.Hunk[] in order
---@param lines string[] the text before
---@param change sanderling.review.Change
---@param source sanderling.review.Source
---@param buf integer
---@return sanderling.review.Hunk
function M.add(hunks, lines, change, source, buf)
  local shift = change.new_count - change.count
  local first, last = range_of(hunks, function(hunk)
    return touches(hunk, change, source)
  end)
  local index = first or first_behind(hunks, change)
  local hunk = M.new(buf, change.row, change.count, {}, source)
  if first then
    local joined = join(hunks, first, last --[[@as integer]], lines, change)
    hunk.row, hunk.count, hunk.old = joined.row, joined.count, joined.old
    hunk.had_end, hunk.made_file = joined.had_end, joined.made_file
    hunk.ids = vim.tbl_extend('keep', hunk.ids, joined.ids)
    hunks[index] = hunk
  else
    add_lines(hunk.old, lines, change.row, change.row + change.count)
    hunk.count = change.new_count
    table.insert(hunks, index, hunk)
  end
  move(hunks, index + 1, shift)
  return hunk
end

--- Drop lines at the ends of a hunk that are equal to the old ones.
---@param hunk sanderling.review.Hunk
---@param lines string[] the text
local function trim(hunk, lines)
  local old, first, last = hunk.old, 1, #hunk.old
  while hunk.count > 0 and first <= last and old[first] == lines[hunk.row + 1] do
    hunk.row, hunk.count, first = hunk.row + 1, hunk.count - 1, first + 1
  end
  while hunk.count > 0 and first <= last and old[last] == lines[hunk.row + hunk.count] do
    hunk.count, last = hunk.count - 1, last - 1
  end
  hunk.old = vim.list_slice(old, first, last)
end

---@param hunks sanderling.review.Hunk[]
---@return integer number of their lines, new and old
local function size_of(hunks)
  return vim.iter(hunks):fold(0, function(sum, hunk)
    return sum + #hunk.old + hunk.count
  end)
end

--- Apply changes that undo or redo the agent's.
---
--- A change next to a hunk may belong to the hunk, such as lines that return where the hunk had deleted them, or to an
--- accepted change next to it. That is not recorded, so the interpretation that leaves smaller hunks is taken.
---@param hunks sanderling.review.Hunk[] in order
---@param lines string[] the text before
---@param list sanderling.review.Change[] in order
---@return fun(text: string[]): sanderling.review.Hunk[] returns the hunks of the text after the changes
function M.restore(hunks, lines, list)
  local joined = M.copy(hunks)
  for i = #list, 1, -1 do
    local change = list[i]
    M.follow(hunks, lines, change)
    local first, last = range_of(joined, function(hunk)
      return touches(hunk, change, {})
    end)
    if first then
      join(joined, first, last --[[@as integer]], lines, change)
    end
    local behind = first and first + 1 or first_behind(joined, change)
    move(joined, behind, change.new_count - change.count)
  end
  return function(text)
    for _, hunk in ipairs(joined) do
      if hunk.had_end == nil then
        trim(hunk, text)
      end
    end
    return size_of(joined) < size_of(hunks) and joined or hunks
  end
end

--- Return whether the hunk's lines are equal to the old ones.
---@param hunk sanderling.review.Hunk
---@param lines string[] the text
---@return boolean
function M.is_undone(hunk, lines)
  if #hunk.old ~= hunk.count then
    return false
  end
  for i, line in ipairs(hunk.old) do
    if lines[hunk.row + i] ~= line then
      return false
    end
  end
  return true
end

---@param hunks sanderling.review.Hunk[]
---@return sanderling.review.Hunk[]
function M.copy(hunks)
  local copies = {}
  for i, hunk in ipairs(hunks) do
    copies[i] = {
      id = hunk.id,
      ids = hunk.ids,
      buf = hunk.buf,
      row = hunk.row,
      count = hunk.count,
      old = hunk.old,
      is_kept = hunk.is_kept,
      had_end = hunk.had_end,
      made_file = hunk.made_file,
      source = hunk.source,
    }
  end
  return copies
end

return M
