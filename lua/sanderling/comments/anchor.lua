--- Finding the lines that a comment is about in a text that has changed: by content, nearest to where they were, or by
--- following them from the text before.
local M = {}

local edits = require('sanderling.editing.hunks')

---@param line string
---@return string
local function squeezed(line)
  return (line:gsub('%s+', ''))
end

---@param line string
---@return string
local function same(line)
  return line
end

--- Return the line where `wanted` begins in `lines`, nearest to `near`.
---@param lines string[]
---@param wanted string[]
---@param near integer
---@param form fun(line: string): string lines are equal if their forms are
---@return integer?
local function nearest(lines, wanted, near, form)
  local best ---@type integer?
  local forms = vim.tbl_map(form, wanted)
  for first = 1, #lines - #wanted + 1 do
    if not best or math.abs(first - near) < math.abs(best - near) then
      local i = 1
      while i <= #forms and form(lines[first + i - 1]) == forms[i] do
        i = i + 1
      end
      best = i > #forms and first or best
    end
  end
  return best
end

--- Return the place of the longest line, from which the others follow.
---@param lines string[]
---@param wanted string[]
---@param near integer
---@return integer? first
local function by_longest_line(lines, wanted, near)
  local at, text = 0, ''
  for i, line in ipairs(wanted) do
    if #squeezed(line) > #squeezed(text) then
      at, text = i, line
    end
  end
  local found = at > 0 and nearest(lines, { text }, near + at - 1, squeezed)
  return found and math.max(1, found - at + 1) or nil
end

--- Return the lines from which and to which `wanted` is in `lines` now.
---@param lines string[]
---@param wanted string[]
---@param near integer the line where it began
---@return integer? first nil: it is not there any more
---@return integer last
function M.find(lines, wanted, near)
  local is_blank = squeezed(table.concat(wanted)) == ''
  local first = nearest(lines, wanted, near, same)
  if not first and not is_blank then
    first = nearest(lines, wanted, near, squeezed) or by_longest_line(lines, wanted, near)
  end
  return first, first and math.min(first + #wanted - 1, #lines) or 0
end

--- Follow lines from one text to the next.
---@param first integer
---@param last integer less than `first`: none
---@param old string[]
---@param new string[]
---@return integer first
---@return integer last less than `first`: they are gone
---@return boolean is_changed one of them differs, is gone, or there are new lines between them
function M.follow(first, last, old, new)
  local new_first, new_last, is_changed = first, last, false
  for _, part in ipairs(edits.differences(old, new)) do
    local from, count, to, new_count = unpack(part)
    local shift = to + new_count - (from + count) -- of the lines behind this part
    if from + count <= first then
      new_first, new_last = first + shift, last + shift
    elseif from <= last then
      is_changed = true
      new_first = math.min(new_first, to)
      new_last = from + count > last and to + new_count - 1 or last + shift
    end
  end
  return new_first, new_last, is_changed
end

return M
