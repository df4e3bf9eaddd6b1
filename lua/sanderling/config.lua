--- Options: defaults, and the checks that refuse what is wrong by its name.
local M = {}

M.POSITIONS = { 'right', 'left', 'top', 'bottom', 'float', 'tab', 'current' }
M.MODES = { 'ask', 'auto', 'plan' }

---@class (exact) sanderling.config.Chat
---@field position 'right'|'left'|'top'|'bottom'|'float'|'tab'|'current'
---@field size number below 1: a share of the editor; from 1 on: columns or rows
---@field prompt_height integer rows of the prompt window
---@field start_insert boolean enter the prompt in insert mode

---@alias sanderling.config.Key string|string[]|false

---@class (exact) sanderling.config.Keys
---@field send_normal sanderling.config.Key prompt, normal mode
---@field send_insert sanderling.config.Key prompt, insert mode
---@field stop sanderling.config.Key both windows
---@field hide sanderling.config.Key transcript
---@field hide_prompt sanderling.config.Key prompt, normal mode
---@field history_previous sanderling.config.Key prompt
---@field history_next sanderling.config.Key prompt
---@field next_message sanderling.config.Key transcript
---@field previous_message sanderling.config.Key transcript
---@field write sanderling.config.Key transcript: go to the prompt, in insert mode
---@field open sanderling.config.Key transcript: open the closed fold, or the file that is named under the cursor
---@field go_to_file sanderling.config.Key transcript: open the file that is named under the cursor
---@field inspect sanderling.config.Key transcript: show the input and the result of a tool use whole
---@field mode sanderling.config.Key prompt: the next mode
---@field approvals sanderling.config.Key both windows, normal mode: go to the question that waits
---@field steer sanderling.config.Key prompt: tell the model in the middle of its turn
---@field waiting sanderling.config.Key both windows, normal mode: show the prompts that wait
---@field next_session sanderling.config.Key both windows, normal mode
---@field previous_session sanderling.config.Key both windows, normal mode

---@class (exact) sanderling.config.Approval
---@field bell boolean ring the terminal's bell when a question comes

---@class (exact) sanderling.config.Sandbox
---@field min_level 'full'|'full-bwrap'|'namespaces'|'landlock' below it commands are refused
---@field hosts string[] that commands reach when the network is 'proxy'
---@field read string[] paths outside of the project that commands may read
---@field write string[] paths outside of the project that commands may change
---@field env string[] names of environment variables that commands see

--- Dollars per million tokens; what is not given is as it is known.
---@class (exact) sanderling.config.Price
---@field input? number
---@field output? number
---@field cache_write? number
---@field cache_read? number
---@field long_prompt_tokens? integer from which a prompt costs more
---@field long_input_factor? number
---@field long_output_factor? number

---@class (exact) sanderling.config.Options
---@field provider 'auto'|'anthropic'|'demo'|'scripted'
---@field model string
---@field max_tokens integer 0: 32,000, or the model's own limit if that is lower
---@field base_url string empty: $ANTHROPIC_BASE_URL, else the API itself
---@field thinking boolean
---@field idle_timeout_s number seconds without a byte before a request fails
---@field max_calls integer of the model in one turn, before you are asked; 0: no limit
---@field budget_usd number dollars of one session, before you are asked; 0: no limit
---@field prices table<string, sanderling.config.Price> by model, instead of those that are known
---@field auto_compact boolean shorten what the model is shown before its window is full
---@field script string the scripted provider's file
---@field python string the interpreter of the host; empty: the environment that :AgentInstall built
---@field sandbox sanderling.config.Sandbox
---@field permissions table[] rules of the person's own: what may be done without asking, what asks, what is denied
---@field approval sanderling.config.Approval
---@field chat sanderling.config.Chat
---@field keys sanderling.config.Keys
M.defaults = {
  provider = 'auto',
  model = 'claude-sonnet-5-5',
  max_tokens = 0,
  base_url = '',
  thinking = true,
  idle_timeout_s = 120,
  max_calls = 200,
  budget_usd = 0,
  prices = {},
  auto_compact = true,
  script = '',
  python = '',
  sandbox = {
    min_level = 'landlock',
    hosts = {},
    read = {},
    write = {},
    env = {},
  },
  permissions = {},
  approval = {
    bell = false,
  },
  chat = {
    position = 'right',
    size = 0.42,
    prompt_height = 7,
    start_insert = false,
  },
  keys = { -- none hides a key of Vim's where prose is written: in the prompt
    send_normal = { '<CR>', '<C-s>' },
    send_insert = '<C-s>',
    stop = '<C-c>',
    hide = { 'q', '<LocalLeader>q' },
    hide_prompt = '<LocalLeader>q',
    history_previous = '<M-p>',
    history_next = '<M-n>',
    next_message = ']]',
    previous_message = '[[',
    write = { 'i', 'a', 'o' },
    open = '<CR>',
    go_to_file = 'gf',
    inspect = 'K',
    mode = '<S-Tab>',
    approvals = '<LocalLeader>a',
    steer = '<M-s>',
    waiting = '<LocalLeader>w',
    next_session = '<LocalLeader>n',
    previous_session = '<LocalLeader>p',
  },
}

---@param choices string[]
local function one_of(choices)
  return function(value)
    return vim.list_contains(choices, value), "one of '" .. table.concat(choices, "', '") .. "'"
  end
end

local function is_key(value)
  local ok = value == false or type(value) == 'string'
  if type(value) == 'table' then
    ok = vim.islist(value)
    for _, lhs in ipairs(value) do
      ok = ok and type(lhs) == 'string'
    end
  end
  return ok, 'a key, a list of keys, or false'
end

local function at_least(least, is_whole)
  return function(value)
    local ok = type(value) == 'number' and value >= least and (not is_whole or value % 1 == 0)
    return ok, (is_whole and 'a whole number' or 'a number') .. ' from ' .. least .. ' on'
  end
end

---@param is_item fun(item: string): boolean
---@param expected string
local function list_of(is_item, expected)
  return function(value)
    local ok = type(value) == 'table' and vim.islist(value)
    for _, item in ipairs(ok and value or {}) do
      ok = ok and type(item) == 'string' and is_item(item)
    end
    return ok, expected
  end
end

local is_list_of_paths = list_of(function(path)
  return vim.startswith(vim.fs.normalize(path), '/')
end, 'a list of absolute paths, in which ~ and $VAR are expanded')

--- What the host takes of a price (src/sanderling/usage.py).
local PRICE = {
  input = 0,
  output = 0,
  cache_write = 0,
  cache_read = 0,
  long_prompt_tokens = 0,
  long_input_factor = 1,
  long_output_factor = 1,
}

---@type fun(options: table, defaults: table, prefix: string)
local check

--- What a key takes, where its default's type does not say it all.
---@type table<string, fun(value: any): boolean, string>
local checks = {
  provider = one_of({ 'auto', 'anthropic', 'demo', 'scripted' }),
  model = function(value)
    return type(value) == 'string' and value ~= '',
      value == '' and 'the name of a model' or 'a string'
  end,
  max_tokens = at_least(0, true),
  idle_timeout_s = at_least(0.001),
  max_calls = at_least(0, true),
  budget_usd = at_least(0),
  prices = function(value)
    local ok = type(value) == 'table'
    for model, price in pairs(ok and value or {}) do
      ok = ok and type(model) == 'string' and type(price) == 'table'
      if ok then
        check(price, PRICE, ("prices['%s']."):format(model))
      end
    end
    return ok,
      "dollars per million tokens by model, like { ['a-model'] = { input = 2, output = 10 } }"
  end,
  ['sandbox.min_level'] = one_of({ 'full', 'full-bwrap', 'namespaces', 'landlock' }),
  ['sandbox.hosts'] = list_of(function(host)
    return host:find('^[^%s/@]+$') ~= nil
  end, "a list of hosts, like 'pypi.org', '*.example.com' or 'example.com:8080'"),
  ['sandbox.read'] = is_list_of_paths,
  ['sandbox.write'] = is_list_of_paths,
  ['sandbox.env'] = list_of(function(name)
    return name:find('^[%a_][%w_]*$') ~= nil
  end, 'a list of names of environment variables'),
  permissions = function(value)
    local ok = type(value) == 'table' and vim.islist(value)
    for _, rule in ipairs(ok and value or {}) do
      ok = ok and type(rule) == 'table' and not vim.islist(rule)
    end
    return ok, "a list of rules, like { action = 'allow', tool = 'bash', command = 'npm test' }"
  end,
  ['chat.position'] = one_of(M.POSITIONS),
  ['chat.size'] = at_least(0.05),
  ['chat.prompt_height'] = at_least(1, true),
}
for name in pairs(M.defaults.keys) do
  checks['keys.' .. name] = is_key
end

---@type sanderling.config.Options
M.options = vim.deepcopy(M.defaults)

--- How many letters must change to make `a` into `b`.
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

--- The key of `known` that was probably meant by `name`.
---@param name string
---@param known table<string, any>
---@return string
function M.nearest(name, known)
  local best, best_distance
  for candidate in vim.spairs(known) do
    local distance = edit_distance(name, candidate)
    if not best_distance or distance < best_distance then
      best, best_distance = candidate, distance
    end
  end
  return best
end

--- Refuse, by name, what `defaults` does not know or takes otherwise.
---@param options table
---@param defaults table
---@param prefix string
function check(options, defaults, prefix)
  for key, value in vim.spairs(options) do
    local name = prefix .. tostring(key)
    local default = defaults[key]
    if default == nil then
      error(
        ("sanderling: unknown option '%s'; did you mean '%s'?"):format(
          name,
          prefix .. M.nearest(tostring(key), defaults)
        ),
        0
      )
    end
    local ok, expected = type(value) == type(default), 'a ' .. type(default)
    if checks[name] then
      ok, expected = checks[name](value)
    end
    if not ok then
      error(
        ("sanderling: option '%s' must be %s, not %s"):format(name, expected, vim.inspect(value)),
        0
      )
    end
    if type(default) == 'table' and not checks[name] then
      check(value, default, name .. '.')
    end
  end
end

--- Check `options` against what `path` of the defaults takes.
---@param options table
---@param path? 'chat'
function M.validate(options, path)
  check(options, path and M.defaults[path] or M.defaults, path and path .. '.' or '')
end

---@param options? table
function M.setup(options)
  options = options or {}
  if type(options) ~= 'table' then
    error('sanderling: setup() takes a table of options, not ' .. vim.inspect(options), 0)
  end
  M.validate(options)
  local merged = vim.tbl_deep_extend('force', vim.deepcopy(M.defaults), options)
  if merged.provider == 'scripted' and merged.script == '' then
    error("sanderling: provider 'scripted' needs the option 'script', the path of its file", 0)
  end
  M.options = merged
end

--- What the host takes, as its own Settings (src/sanderling/config.py).
---@return sanderling.Settings
function M.host_settings()
  local o = M.options
  return {
    provider = o.provider,
    model = o.model,
    max_tokens = o.max_tokens,
    base_url = o.base_url,
    thinking = o.thinking,
    idle_timeout_s = o.idle_timeout_s,
    max_calls = o.max_calls,
    budget_usd = o.budget_usd,
    prices = vim.tbl_extend('keep', vim.empty_dict(), o.prices),
    auto_compact = o.auto_compact,
    script = o.script ~= '' and vim.fs.normalize(o.script) or '',
    state_dir = vim.fs.joinpath(vim.fn.stdpath('state'), 'sanderling'),
    log_file = M.log_file(),
    sandbox_min_level = o.sandbox.min_level,
    sandbox_hosts = o.sandbox.hosts,
    sandbox_read = vim.tbl_map(vim.fs.normalize, o.sandbox.read),
    sandbox_write = vim.tbl_map(vim.fs.normalize, o.sandbox.write),
    sandbox_env = o.sandbox.env,
    permissions = o.permissions,
  }
end

---@return string
function M.log_file()
  return vim.fs.joinpath(vim.fn.stdpath('log'), 'sanderling.log')
end

return M
