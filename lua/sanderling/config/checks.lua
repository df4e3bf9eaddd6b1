--- Checks of options for which the default's type is not enough, and conversions for the host.
local M = {}

local keys = require('sanderling.ui.keys')

--- Reports mistakes inside a value through `look`.
---@alias sanderling.config.Check fun(value: any, look: fun(inner: table, known: table, prefix: string)): boolean, string

---@param is_item fun(item: string): boolean
---@param expected string
---@return sanderling.config.Check
function M.list_of(is_item, expected)
  return function(value)
    local ok = type(value) == 'table' and vim.islist(value)
    for _, item in ipairs(ok and value or {}) do
      ok = ok and type(item) == 'string' and is_item(item)
    end
    return ok, expected
  end
end

M.is_list_of_strings = M.list_of(function()
  return true
end, 'a list of strings')

M.is_list_of_paths = M.list_of(function(path)
  return vim.startswith(vim.fs.normalize(path), '/')
end, 'a list of absolute paths, in which ~ and $VAR are expanded')

--- Return `value` without empty tables: the host cannot know whether they are lists.
---@param value any
---@return any value nil if it is an empty table
function M.without_empty(value)
  if type(value) ~= 'table' then
    return value
  end
  local kept = {}
  for key, item in pairs(value) do
    kept[key] = M.without_empty(item)
  end
  return next(kept) ~= nil and kept or nil
end

--- Can it be sent to the host? Tables must be lists or have string keys; functions cannot be sent.
---@param value any
---@return boolean
local function can_travel(value)
  if type(value) ~= 'table' then
    return vim.list_contains({ 'string', 'number', 'boolean' }, type(value))
  end
  local is_list = vim.islist(value)
  for key, item in pairs(value) do
    if not (is_list or type(key) == 'string') or not can_travel(item) then
      return false
    end
  end
  return true
end

--- Return a check of tables by name, whose fields only the host knows.
---@param example string
---@return sanderling.config.Check
function M.tables_by_name(example)
  return function(value)
    local ok = type(value) == 'table' and (vim.tbl_isempty(value) or not vim.islist(value))
    for name, item in pairs(ok and value or {}) do
      ok = ok and type(name) == 'string' and type(item) == 'table' and can_travel(item)
    end
    return ok, 'tables by name, like ' .. example
  end
end

--- Check the options of extensions, which only these know. They can have functions.
---@param value any
---@return boolean ok
---@return string expected
function M.are_extensions(value)
  local ok = type(value) == 'table'
  for name, options in pairs(ok and value or {}) do
    ok = ok and type(name) == 'string' and type(options) == 'table'
  end
  return ok, 'tables of options by name, like { jira = { project = "ABC" } }'
end

function M.normalized(paths)
  return vim.tbl_map(vim.fs.normalize, paths)
end

---@param value any
---@return boolean ok
---@return string expected
function M.is_key(value)
  local ok = value == false or type(value) == 'string'
  if type(value) == 'table' then
    ok = M.is_list_of_strings(value)
  end
  return ok, 'a key, a list of keys, or false'
end

--- Check keys that allow something.
---@param value any
---@return boolean ok
---@return string expected
function M.is_key_without_escape(value)
  local ok, expected = M.is_key(value)
  if not ok then
    return false, expected
  end
  ok = not vim.iter(keys.list(value)):any(keys.has_escape)
  return ok, 'a key without Alt or Escape (to a terminal, <M-a> is <Esc> and a)'
end

---@param choices string[]
---@return sanderling.config.Check
function M.one_of(choices)
  return function(value)
    return vim.list_contains(choices, value), "one of '" .. table.concat(choices, "', '") .. "'"
  end
end

---@param least number
---@param is_whole? boolean
---@return sanderling.config.Check
function M.at_least(least, is_whole)
  return function(value)
    local ok = type(value) == 'number' and value >= least and (not is_whole or value % 1 == 0)
    return ok, (is_whole and 'a whole number' or 'a number') .. ' from ' .. least .. ' on'
  end
end

return M
