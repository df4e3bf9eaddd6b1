--- Hunks: replacements of lines, narrowed to what differs.
local M = {}

local api = vim.api
local find = require('sanderling.editing.find')

local MAX_COMPARED_LINES = 10000 -- on each side; the worst case takes 0.1 s

---@alias sanderling.editing.Hunk [integer, integer, string[]] first line from 0, count, replacement

---@class (exact) sanderling.editing.Edit
---@field row integer
---@field old string[] the current lines
---@field new string[] the lines that replace them

--- Split a text into the lines that a buffer would hold.
---@param text string
---@return string[]
function M.lines_of(text)
  local lines = vim.split(text, '\n', { plain = true })
  if lines[#lines] == '' then
    lines[#lines] = nil
  end
  return lines
end

---@param lines string[]
---@param first integer
---@param last integer
---@return string
local function joined(lines, first, last)
  return first <= last and table.concat(lines, '\n', first, last) .. '\n' or ''
end

--- Return where two lists of lines differ: first and count in the old one, first and count in the new one; from 1.
---@param old string[]
---@param new string[]
---@return [integer, integer, integer, integer][]
function M.differences(old, new)
  local head, tail, shorter = 0, 0, math.min(#old, #new)
  while head < shorter and old[head + 1] == new[head + 1] do
    head = head + 1
  end
  while tail < shorter - head and old[#old - tail] == new[#new - tail] do
    tail = tail + 1
  end
  local old_count, new_count = #old - head - tail, #new - head - tail
  if old_count + new_count == 0 then
    return {}
  elseif math.max(old_count, new_count) > MAX_COMPARED_LINES then
    return { { head + 1, old_count, head + 1, new_count } }
  end
  local before = joined(old, head + 1, #old - tail)
  local after = joined(new, head + 1, #new - tail)
  local options = { result_type = 'indices', indent_heuristic = true }
  local parts = vim.diff(before, after, options) --[[@as [integer, integer, integer, integer][] ]]
  for _, part in ipairs(parts) do
    -- For an empty part vim.diff() gives the line before it.
    part[1] = head + part[1] + (part[2] == 0 and 1 or 0)
    part[3] = head + part[3] + (part[4] == 0 and 1 or 0)
  end
  return parts
end

---@param hunks sanderling.editing.Hunk[]
---@return sanderling.editing.Hunk[] hunks with adjacent ones joined
local function merge(hunks)
  local merged = {}
  for _, hunk in ipairs(hunks) do
    local last = merged[#merged]
    if last and last[1] + last[2] == hunk[1] then
      last[2] = last[2] + hunk[2]
      last[3] = vim.list_extend(vim.list_slice(last[3]), hunk[3])
    else
      merged[#merged + 1] = { unpack(hunk) }
    end
  end
  return merged
end

--- Convert hunks to edits in the buffer's line numbers. A text that ends in a newline has an empty line after it, which
--- hunks may name and a buffer represents by 'endofline'.
---@param buf integer
---@param hunks sanderling.editing.Hunk[]
---@return sanderling.editing.Edit[] edits
---@return boolean has_end whether the text will end in a newline
function M.plan(buf, hunks)
  local is_blank = find.is_empty(buf)
  local line_count = is_blank and 0 or api.nvim_buf_line_count(buf)
  local has_end = is_blank or vim.bo[buf].endofline
  local total = has_end and line_count + 1 or line_count
  local edits, free_from = {}, 0
  for _, hunk in ipairs(merge(hunks)) do
    local row, count, new = unpack(hunk)
    if row < free_from or count < 0 or row + count > total then
      error(('Lines %d to %d do not exist.'):format(row + 1, row + count), 0)
    elseif table.concat(new):find('\n', 1, true) then
      error('A line of the replacement contains a newline.', 0)
    end
    free_from = row + count
    if free_from == total then -- it decides how the text ends
      if row > line_count then -- after the final newline: that line now appears
        row, new = line_count, vim.list_extend({ '' }, new)
      elseif #new == 0 and row > 0 then -- the line before becomes the last one
        row, new = row - 1, api.nvim_buf_get_lines(buf, row - 1, row, true)
      end
      has_end = #new == 0 or new[#new] == ''
      new = has_end and vim.list_slice(new, 1, #new - 1) or new
    end
    local last = math.min(free_from, line_count)
    local old = row < last and api.nvim_buf_get_lines(buf, row, last, true) or {}
    edits[#edits + 1] = { row = row, old = old, new = new }
  end
  return edits, has_end
end

--- Reduce edits to what differs, so that other lines keep their marks.
---@param edits sanderling.editing.Edit[]
---@return sanderling.editing.Edit[]
function M.narrow(edits)
  local narrowed = {}
  for _, edit in ipairs(edits) do
    for _, part in ipairs(M.differences(edit.old, edit.new)) do
      local from, count, new_from, new_count = unpack(part)
      narrowed[#narrowed + 1] = {
        row = edit.row + from - 1,
        old = vim.list_slice(edit.old, from, from + count - 1),
        new = vim.list_slice(edit.new, new_from, new_from + new_count - 1),
      }
    end
  end
  return narrowed
end

return M
