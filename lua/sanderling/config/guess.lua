--- Guesses at what was meant by a name that is not known.
local M = {}

--- The names that people know from elsewhere.
local SYNONYMS = { width = 'size', height = 'size', side = 'position', layout = 'position' }

local MAX_GUESSES = 3

--- The number of letters that must change to make `a` into `b`.
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

--- The key of `known` that takes the fewest changes.
---@param name string
---@param known table<string, any>
---@return string
---@return integer distance
function M.nearest(name, known)
  local best, best_distance = '', math.huge
  for candidate in vim.spairs(known) do
    local distance = edit_distance(name, candidate)
    if distance < best_distance then
      best, best_distance = candidate, distance
    end
  end
  return best, best_distance
end

--- `promptHeight`, `prompt-height` and `prompt_height` are one name.
---@param name string
---@return string
local function letters(name)
  return (name:lower():gsub('[^%w]', ''))
end

--- Is `name` a part or an abbreviation of `candidate`? "pos" and "cmd" are, of "position" and "command".
---@param name string
---@param candidate string
---@return boolean
local function abbreviates(name, candidate)
  local pattern = '^' .. name:gsub('%w', '%0.*')
  return #name > 1 and candidate:find(pattern) ~= nil
end

--- The keys of `known` for which `holds`; "normal" comes before "insert", "previous" before "next".
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

--- The options of all tables that have this name, with or without that of a table.
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

--- The options that were probably meant by `name`: those of its own table, `known`, or of all, `defaults`.
---@param name string
---@param known table<string, any>
---@param prefix string of the names in `known`
---@param defaults table
---@return string[] with their prefix, the best first; none where nothing is near
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
