--- Word differences between a hunk's lines and the lines that they replaced.
local M = {}

local MAX_LINES = 60 -- per side of a hunk
-- Matching the sides of a hunk by similarity takes 1 ms at these sizes, grows quadratically, and a screen may show
-- several hunks.
local MAX_MATCHED_LINES, MAX_MATCHED_BYTES = 24, 2000
local MAX_BYTES = 500 -- of a line

---@alias sanderling.review.words.Span [integer, integer] bytes from 0, end exclusive

---@class (exact) sanderling.review.words.Words
---@field old table<integer, sanderling.review.words.Span[]> removed parts, by index of the line
---@field new table<integer, sanderling.review.words.Span[]> added parts

---@param lines string[]
---@return string
local function joined(lines)
  return #lines > 0 and table.concat(lines, '\n') .. '\n' or ''
end

--- Split a line into words and single other characters.
---@param line string
---@return string[] tokens
---@return integer[] starts bytes from 0, and the end of the line
local function split(line)
  local tokens, starts, at = {}, {}, 1
  while at <= #line do
    local token = line:match('^[%w_]+', at)
      or line:match('^[^\128-\191][\128-\191]*', at)
      or line:sub(at, at)
    tokens[#tokens + 1], starts[#starts + 1] = token, at - 1
    at = at + #token
  end
  starts[#starts + 1] = #line
  return tokens, starts
end

---@param old string
---@param new string
---@return sanderling.review.words.Span[]? old nil: the lines have too little in common
---@return sanderling.review.words.Span[]? new
local function compare(old, new)
  if math.max(#old, #new) > MAX_BYTES then
    return
  end
  local old_tokens, old_starts = split(old)
  local new_tokens, new_starts = split(new)
  local gone, come, changed = {}, {}, 0
  local parts = vim.diff(joined(old_tokens), joined(new_tokens), { result_type = 'indices' }) --[[@as [integer, integer, integer, integer][] ]]
  for _, part in ipairs(parts) do
    local from, count, new_from, new_count = unpack(part)
    if count > 0 then
      gone[#gone + 1] = { old_starts[from], old_starts[from + count] }
      changed = changed + gone[#gone][2] - gone[#gone][1]
    end
    if new_count > 0 then
      come[#come + 1] = { new_starts[new_from], new_starts[new_from + new_count] }
      changed = changed + come[#come][2] - come[#come][1]
    end
  end
  if changed * 3 > (#old + #new) * 2 then
    return
  end
  return gone, come
end

---@param old string[]
---@param new string[]
---@param words sanderling.review.words.Words receives the differences
---@return boolean is_alike every line is similar to its counterpart
local function compare_each(old, new, words)
  for i, line in ipairs(old) do
    words.old[i], words.new[i] = compare(line, new[i])
    if not words.old[i] then
      return false
    end
  end
  return true
end

--- Return the removed and added words of similar lines.
---@param old string[]
---@param new string[]
---@return sanderling.review.words.Words
function M.differing(old, new)
  local words = { old = {}, new = {} }
  if #old == 0 or #new == 0 or math.max(#old, #new) > MAX_LINES then
    return words
  end
  if #old == #new and compare_each(old, new, words) or #old + #new == 2 then
    return words
  end
  words = { old = {}, new = {} }
  local before, after = joined(old), joined(new)
  local is_matched = #old + #new <= MAX_MATCHED_LINES and #before + #after <= MAX_MATCHED_BYTES
  local options = { result_type = 'indices', linematch = is_matched and MAX_MATCHED_LINES or nil }
  local parts = vim.diff(before, after, options) --[[@as [integer, integer, integer, integer][] ]]
  for _, part in ipairs(parts) do
    local from, count, new_from, new_count = unpack(part)
    for i = 0, math.min(count, new_count) - 1 do
      words.old[from + i], words.new[new_from + i] = compare(old[from + i], new[new_from + i])
    end
  end
  return words
end

return M
