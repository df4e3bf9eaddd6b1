--- The table of options: name, default, what else it must be, what it is for, and what the host calls it. From it come the checks,
--- the settings of the host, and, by `make format`, config/types.lua and the lists in the help.

---@class (exact) sanderling.config.Row
---@field name string `chat.size` is the option `size` of the table `chat`
---@field default any
---@field doc string
---@field class? string its type, where the default does not say it
---@field type? string the same, as the help has it
---@field choices? string[] what it can be
---@field least? number
---@field is_whole? boolean
---@field check? sanderling.config.Check
---@field host? string its name in the host's settings (src/sanderling/config.py)
---@field to_host? fun(value: any): any

--- Says what is wrong deeper inside a value by `look`.
---@alias sanderling.config.Check fun(value: any, look: fun(inner: table, known: table, prefix: string)): boolean, string

---@param is_item fun(item: string): boolean
---@param expected string
---@return sanderling.config.Check
local function list_of(is_item, expected)
  return function(value)
    local ok = type(value) == 'table' and vim.islist(value)
    for _, item in ipairs(ok and value or {}) do
      ok = ok and type(item) == 'string' and is_item(item)
    end
    return ok, expected
  end
end

local is_list_of_strings = list_of(function()
  return true
end, 'a list of strings')

local is_list_of_paths = list_of(function(path)
  return vim.startswith(vim.fs.normalize(path), '/')
end, 'a list of absolute paths, in which ~ and $VAR are expanded')

local function normalized(paths)
  return vim.tbl_map(vim.fs.normalize, paths)
end

--- The fields of a price that the host takes (src/sanderling/catalogue/models.py).
local PRICE = {
  input = 0,
  output = 0,
  cache_write = 0,
  cache_read = 0,
  long_prompt_tokens = 0,
  long_input_factor = 1,
  long_output_factor = 1,
}

--- The fields of a rule (src/sanderling/permissions/rules.py).
local RULE = {
  action = '',
  tool = '',
  command = '',
  path = '',
  host = '',
  examples = { matches = {}, does_not_match = {} },
}

local M = {}

---@type sanderling.config.Row[]
M.rows = {
  {
    name = 'provider',
    default = 'auto',
    doc = 'what answers',
    check = function(value)
      return type(value) == 'string' and value ~= '', "'auto' or the name of a provider"
    end,
    host = 'provider',
  },
  {
    name = 'model',
    default = 'claude-sonnet-5-5',
    doc = 'the name that the API knows, alone or as PROVIDER:MODEL',
    check = function(value)
      local expected = value == '' and 'the name of a model' or 'a string'
      return type(value) == 'string' and value ~= '', expected
    end,
    host = 'model',
  },
  {
    name = 'max_tokens',
    default = 0,
    least = 0,
    is_whole = true,
    doc = "of an answer; 0: 32,000, or the model's own limit if that is lower",
    host = 'max_tokens',
  },
  {
    name = 'base_url',
    default = '',
    doc = 'empty: $ANTHROPIC_BASE_URL, else the API itself',
    host = 'base_url',
  },
  {
    name = 'thinking',
    default = true,
    doc = 'ask for it, and for summaries of it',
    host = 'thinking',
  },
  {
    name = 'idle_timeout_s',
    default = 120,
    least = 0.001,
    doc = 'seconds without a byte before a request fails',
    host = 'idle_timeout_s',
  },
  {
    name = 'max_calls',
    default = 200,
    least = 0,
    is_whole = true,
    doc = 'of the model in one turn, before you are asked; 0: no limit',
    host = 'max_calls',
  },
  {
    name = 'budget_usd',
    default = 0,
    least = 0,
    doc = 'dollars of one session, before you are asked; 0: no limit',
    host = 'budget_usd',
  },
  {
    name = 'prices',
    default = {},
    class = 'table<string, sanderling.config.Price>',
    doc = 'by model, instead of those that are known',
    check = function(value, look)
      local ok = type(value) == 'table'
      for model, price in pairs(ok and value or {}) do
        ok = ok and type(model) == 'string' and type(price) == 'table'
        if ok then
          look(price, PRICE, ("prices['%s']."):format(model))
        end
      end
      return ok,
        "dollars per million tokens by model, like { ['a-model'] = { input = 2, output = 10 } }"
    end,
    host = 'prices',
    to_host = function(prices)
      return vim.tbl_extend('keep', vim.empty_dict(), prices)
    end,
  },
  {
    name = 'auto_compact',
    default = true,
    doc = 'shorten what the model is shown before its window is full',
    host = 'auto_compact',
  },
  {
    name = 'script',
    default = '',
    doc = "the scripted provider's file",
    host = 'script',
    to_host = function(path)
      return path ~= '' and vim.fs.normalize(path) or ''
    end,
  },
  {
    name = 'python',
    default = '',
    doc = 'the interpreter of the host; empty: the environment that :AgentInstall built',
  },
  {
    name = 'approval.bell',
    default = false,
    doc = "ring the terminal's bell when a question comes",
  },
  {
    name = 'permissions',
    default = {},
    class = 'table[]',
    type = 'list',
    doc = "rules of the person's own: what may be done without asking, what asks, what is denied",
    check = function(value, look)
      local ok = type(value) == 'table' and vim.islist(value)
      for i, rule in ipairs(ok and value or {}) do
        ok = ok and type(rule) == 'table' and (next(rule) == nil or not vim.islist(rule))
        if ok then
          local whole = vim.tbl_extend('keep', rule, { action = '' })
          look(whole, RULE, ('permissions[%d].'):format(i))
        end
      end
      return ok, "a list of rules, like { action = 'allow', tool = 'bash', command = 'npm test' }"
    end,
    host = 'permissions',
  },
  {
    name = 'sandbox.min_level',
    default = 'landlock',
    choices = { 'full', 'full-bwrap', 'namespaces', 'landlock' },
    doc = 'below it commands are refused',
    host = 'sandbox_min_level',
  },
  {
    name = 'sandbox.hosts',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = "that commands reach when the network is 'proxy'",
    check = list_of(function(host)
      return host:find('^[^%s/@]+$') ~= nil
    end, "a list of hosts, like 'pypi.org', '*.example.com' or 'example.com:8080'"),
    host = 'sandbox_hosts',
  },
  {
    name = 'sandbox.read',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'paths outside of the project that commands may read',
    check = is_list_of_paths,
    host = 'sandbox_read',
    to_host = normalized,
  },
  {
    name = 'sandbox.write',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'paths outside of the project that commands may change',
    check = is_list_of_paths,
    host = 'sandbox_write',
    to_host = normalized,
  },
  {
    name = 'sandbox.env',
    default = {},
    class = 'string[]',
    type = 'list',
    doc = 'names of environment variables that commands see',
    check = list_of(function(name)
      return name:find('^[%a_][%w_]*$') ~= nil
    end, 'a list of names of environment variables'),
    host = 'sandbox_env',
  },
  {
    name = 'icons',
    default = 'unicode',
    choices = { 'unicode', 'ascii' },
    doc = "signs on the screen; 'ascii' where the font lacks them",
  },
  {
    name = 'chat.position',
    default = 'right',
    choices = { 'right', 'left', 'top', 'bottom', 'float', 'tab', 'current' },
    doc = 'where the chat opens',
  },
  {
    name = 'chat.size',
    default = 0.42,
    least = 0.05,
    doc = 'below 1: a share of the editor; from 1 on: columns or rows',
  },
  {
    name = 'chat.prompt_height',
    default = 7,
    least = 1,
    is_whole = true,
    doc = 'rows of the prompt window',
  },
  {
    name = 'chat.start_insert',
    default = false,
    doc = 'enter the prompt in insert mode',
  },
}

---@param value any
---@return boolean ok
---@return string expected
local function is_key(value)
  local ok = value == false or type(value) == 'string'
  if type(value) == 'table' then
    ok = is_list_of_strings(value)
  end
  return ok, 'a key, a list of keys, or false'
end

for _, key in ipairs(require('sanderling.ui.keys').rows) do
  M.rows[#M.rows + 1] = {
    name = 'keys.' .. key.option,
    default = key.default,
    class = 'sanderling.config.Key',
    doc = key.desc,
    check = is_key,
  }
end

---@param choices string[]
---@return sanderling.config.Check
local function one_of(choices)
  return function(value)
    return vim.list_contains(choices, value), "one of '" .. table.concat(choices, "', '") .. "'"
  end
end

---@param least number
---@param is_whole? boolean
---@return sanderling.config.Check
local function at_least(least, is_whole)
  return function(value)
    local ok = type(value) == 'number' and value >= least and (not is_whole or value % 1 == 0)
    return ok, (is_whole and 'a whole number' or 'a number') .. ' from ' .. least .. ' on'
  end
end

--- The checks of options whose default's type does not say it all.
---@type table<string, sanderling.config.Check>
M.checks = {
  ['permissions[].action'] = one_of({ 'allow', 'ask', 'deny' }),
  ['permissions[].tool'] = function(value)
    local is_known, words = one_of({ 'bash', 'read', 'edit', 'write', 'web_fetch', '*' })(value)
    local is_outside = type(value) == 'string' and value:find('__', 1, true) ~= nil
    return is_known or is_outside, words .. ", or like 'mcp__server__*'"
  end,
  ['permissions[].examples.matches'] = is_list_of_strings,
  ['permissions[].examples.does_not_match'] = is_list_of_strings,
}

---@type sanderling.config.Options
M.defaults = {}

for _, row in ipairs(M.rows) do
  M.checks[row.name] = row.check
    or row.choices and one_of(row.choices)
    or row.least and at_least(row.least, row.is_whole)
    or nil
  local group, name = row.name:match('^(.*)%.(.*)$')
  local defaults = M.defaults
  if group then
    defaults[group] = defaults[group] or {}
    defaults = defaults[group]
  end
  defaults[name or row.name] = row.default
end

--- The choices of the option `name`.
---@param name string
---@return string[]
function M.choices(name)
  for _, row in ipairs(M.rows) do
    if row.name == name then
      return assert(row.choices)
    end
  end
  error(name)
end

return M
