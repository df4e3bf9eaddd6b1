--- Finding the lines that a comment is about in a text that has changed: by content, nearest to where they were.
local M = {}

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

return M
