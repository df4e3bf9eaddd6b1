--- Outlines of texts without a grammar: the lines that begin a definition or a section.
local M = {}

local MAX_BYTES = 200 -- of a line

-- Words that begin a definition in common languages, possibly after words such as `export` and `static`.
local DEFINING = {}
for word in
  ([[class def defmodule defp enum fn fun func function impl interface macro mod module namespace package
    procedure protocol record sub struct trait type union]]):gmatch('%l+')
do
  DEFINING[word] = true
end
local BEFORE = {}
for word in
  ([[abstract async const declare default export extern final inline internal local open override private protected
    pub public sealed static unsafe virtual]]):gmatch('%l+')
do
  BEFORE[word] = true
end

--- Does the line begin a definition or a section?
---@param line string
---@param is_markdown boolean
---@return boolean
local function is_definition(line, is_markdown)
  if is_markdown then
    return line:find('^#+ ') ~= nil
  end
  if not line:find('^%s*[%a_]') then
    return false
  end
  for word in line:sub(1, MAX_BYTES):gmatch('[%a_]+') do
    if not BEFORE[word] then
      return DEFINING[word] == true and line:find('[%w_]', line:find(word, 1, true) + #word) ~= nil
    end
  end
  return false
end

--- List the definitions in `lines` as `number: line`.
---@param lines string[]
---@param filetype string
---@param most integer
---@param is_wanted fun(row: integer): boolean
---@return string[]
function M.of(lines, filetype, most, is_wanted)
  local found = {}
  for i, line in ipairs(lines) do
    if #found >= most then
      break
    elseif is_wanted(i - 1) and is_definition(line, filetype == 'markdown') then
      found[#found + 1] = ('%d: %s'):format(i, (line:sub(1, MAX_BYTES):gsub('\r$', '')))
    end
  end
  return found
end

return M
