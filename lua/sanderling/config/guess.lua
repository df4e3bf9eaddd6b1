--- Suggestions for unknown names.
local M = {}

--- Names that other plugins use.
local SYNONYMS = { width = 'size', height = 'size', side = 'position', layout = 'position' }

local MAX_GUESSES = 3

--- Return how many letters must change to turn `a` into `b`.
---@param a string
---@param b string
---@return integer
local function edit_distance(a, b)
  local row = {}
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local substitution = diagonal + (a:byte(i) == b:byte(j) and 0 or 1)
      diagonal = row[j]
      row[j] = math.min(substitution, row[j] + 1, row[j - 1] + 1)
    end
  end
  return row[#b]
end

---@param name string
---@return string its letters in order
local function sorted(name)
  local found = vim.split(name, '')
  table.sort(found)
  return table.concat(found)
end

--- Return the key of `known` that needs the fewest changes.
---@param name string
---@param known table<string, any>
---@return string
---@return integer distance
function M.nearest(name, known)
  local best, best_distance = '', math.huge
  for candidate in vim.spairs(known) do
    local distance = edit_distance(name, candidate)
    if sorted(name) == sorted(candidate) then -- "modle" is not "mode"
      distance = 0.5
    end
    if distance < best_distance then
      best, best_distance = candidate, distance
    end
  end
  return best, best_distance
end

--- Normalize a name: `promptHeight`, `prompt-height` and `prompt_height` are the same.
---@param name string
---@return string
local function letters(name)
  return (name:lower():gsub('[^%w]', ''))
end

--- Is `name` an abbreviation of `candidate`, such as "pos" of "position" or "cmd" of "command"?
---@param name string
---@param candidate string
---@return boolean
local function abbreviates(name, candidate)
  local pattern = '^' .. name:gsub('%w', '%0.*')
  return #name > 1 and candidate:find(pattern) ~= nil
end

--- Return the keys of `known` for which `holds`, sorted so that "normal" precedes "insert", and "previous" precedes "next".
---@param known table<string, any>
---@param holds fun(candidate: string): boolean
---@return string[]
local function all(known, holds)
  local names = vim.tbl_filter(holds, vim.tbl_keys(known))
  table.sort(names, function(a, b)
    return a > b
  end)
  return names
end

--- Return the options of all tables with this name, with or without that of a table.
---@param name string
---@param defaults table
---@return string[]
local function elsewhere(name, defaults)
  local found, last = {}, letters(name:match('[^.]*$'))
  for key, default in vim.spairs(defaults) do
    local is_group = type(default) == 'table' and next(default) ~= nil
    if letters(key) == last and not is_group then
      found[#found + 1] = key
    end
    for inner in vim.spairs(type(default) == 'table' and default or {}) do
      if letters(inner) == last or letters(key .. inner) == letters(name) then
        found[#found + 1] = key .. '.' .. inner
      end
    end
  end
  return found
end

--- Return the options probably meant by `name`: from its own table, `known`, or from all, `defaults`.
---@param name string
---@param known table<string, any>
---@param prefix string of the names in `known`
---@param defaults table
---@return string[] with their prefix, best first; empty if nothing is close
function M.options(name, known, prefix, defaults)
  local found = all(known, function(candidate)
    local is_beginning = #name > 1 and vim.startswith(letters(candidate), letters(name))
    return is_beginning or candidate == SYNONYMS[name]
  end)
  if #found == 0 then
    found = all(known, function(candidate)
      return vim.list_contains(vim.split(candidate, '_'), name)
    end)
  end
  local others = #found == 0 and elsewhere(prefix .. name, defaults) or {}
  if #others > 0 then
    return others
  end
  local nearest, distance = M.nearest(name, known)
  if #found == 0 and distance > math.max(#name / 3, 1) then
    found = all(known, function(candidate)
      return abbreviates(letters(name), candidate)
    end)
  end
  if #found == 0 and distance <= 0.6 * math.max(#name, #nearest) then
    found = { nearest }
  end
  return vim.tbl_map(function(candidate)
    return prefix .. candidate
  end, vim.list_slice(found, 1, MAX_GUESSES))
end

return M
