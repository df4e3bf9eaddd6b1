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
---@field scroll_up sanderling.config.Key
---@field scroll_down sanderling.config.Key
---@field go_to_end sanderling.config.Key
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
    scroll_up = '<PageUp>',
    scroll_down = '<PageDown>',
    go_to_end = '<C-End>',
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

local is_list_of_strings = list_of(function()
  return true
end, 'a list of strings')

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

--- What a rule takes (src/sanderling/permissions.py).
local RULE = {
  action = '',
  tool = '',
  command = '',
  path = '',
  host = '',
  examples = { matches = {}, does_not_match = {} },
}

---@class (exact) sanderling.config.Mistake
---@field name string the option
---@field text string
---@field guess? string

---@type fun(options: table, defaults: table, prefix: string, mistakes: sanderling.config.Mistake[]): table
local check

--- What a key takes, where its default's type does not say it all. What is wrong deeper inside is added to `mistakes`.
---@type table<string, fun(value: any, mistakes: sanderling.config.Mistake[]): boolean, string>
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
  prices = function(value, mistakes)
    local ok = type(value) == 'table'
    for model, price in pairs(ok and value or {}) do
      ok = ok and type(model) == 'string' and type(price) == 'table'
      if ok then
        check(price, PRICE, ("prices['%s']."):format(model), mistakes)
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
  permissions = function(value, mistakes)
    local ok = type(value) == 'table' and vim.islist(value)
    for i, rule in ipairs(ok and value or {}) do
      ok = ok and type(rule) == 'table' and (next(rule) == nil or not vim.islist(rule))
      if ok then
        check(
          vim.tbl_extend('keep', rule, { action = '' }),
          RULE,
          ('permissions[%d].'):format(i),
          mistakes
        )
      end
    end
    return ok, "a list of rules, like { action = 'allow', tool = 'bash', command = 'npm test' }"
  end,
  ['permissions[].action'] = one_of({ 'allow', 'ask', 'deny' }),
  ['permissions[].tool'] = function(value)
    local is_known, words = one_of({ 'bash', 'read', 'edit', 'write', 'web_fetch', '*' })(value)
    local is_outside = type(value) == 'string' and value:find('__', 1, true) ~= nil
    return is_known or is_outside, words .. ", or like 'mcp__server__*'"
  end,
  ['permissions[].examples.matches'] = is_list_of_strings,
  ['permissions[].examples.does_not_match'] = is_list_of_strings,
  ['chat.position'] = one_of(M.POSITIONS),
  ['chat.size'] = at_least(0.05),
  ['chat.prompt_height'] = at_least(1, true),
}
for name in pairs(M.defaults.keys) do
  checks['keys.' .. name] = is_key
end

---@type sanderling.config.Options
M.options = vim.deepcopy(M.defaults)

--- What is wrong with the options that were given.
---@type sanderling.config.Mistake[]
M.mistakes = {}

--- Why they keep sessions from beginning, if they do.
---@type string?
M.problem = nil

---@param key any
---@param defaults table
---@param prefix string
---@return sanderling.config.Mistake
local function unknown(key, defaults, prefix)
  local name = prefix .. tostring(key)
  local guesses =
    require('sanderling.config.guess').options(tostring(key), defaults, prefix, M.defaults)
  local hint = #guesses > 0 and ("did you mean '%s'?"):format(table.concat(guesses, "' or '"))
    or 'see :help sanderling-options'
  return {
    name = name,
    guess = guesses[1],
    text = ("unknown option '%s'; %s"):format(name, hint),
  }
end

--- Find what `defaults` does not know or takes otherwise.
---@param options table
---@param defaults table
---@param prefix string
---@param mistakes sanderling.config.Mistake[] to which what is wrong is added
---@return table right those of the options that are
function check(options, defaults, prefix, mistakes)
  local right = {}
  local keys = vim.tbl_keys(options)
  table.sort(keys, function(a, b)
    return tostring(a) < tostring(b)
  end)
  for _, key in ipairs(keys) do
    local name, value, default = prefix .. tostring(key), options[key], defaults[key]
    local special = checks[name:gsub('%[%d+%]', '[]')]
    local ok, expected = type(value) == type(default), 'a ' .. type(default)
    local count = #mistakes
    if special then
      ok, expected = special(value, mistakes)
    end
    if default == nil then
      mistakes[#mistakes + 1] = unknown(key, defaults, prefix)
    elseif not ok then
      local given = vim.inspect(value, { newline = ' ', indent = '' })
      local text = ("option '%s' must be %s, not %s"):format(name, expected, given)
      mistakes[#mistakes + 1] = { name = name, text = text }
    elseif type(default) == 'table' and not special then
      right[key] = check(value, default, name .. '.', mistakes)
    elseif #mistakes == count then
      right[key] = value
    end
  end
  return right
end

--- Check `options` against what `path` of the defaults takes.
---@param options table
---@param path? 'chat'
function M.validate(options, path)
  local mistakes = {} ---@type sanderling.config.Mistake[]
  check(options, path and M.defaults[path] or M.defaults, path and path .. '.' or '', mistakes)
  if #mistakes > 0 then
    error('sanderling: ' .. mistakes[1].text, 0)
  end
end

--- Say what is wrong in one line, which asks for no <Enter>. `:checkhealth` has the whole sentences.
---@param mistakes sanderling.config.Mistake[]
local function tell(mistakes)
  local line = 'sanderling: ' .. mistakes[1].text
  if #mistakes > 1 then
    local names = vim.tbl_map(function(mistake)
      return mistake.guess and ('%s (%s?)'):format(mistake.name, mistake.guess) or mistake.name
    end, mistakes)
    line = ('sanderling: %d options are wrong, see :AgentHealth: %s'):format(
      #mistakes,
      table.concat(names, ', ')
    )
  end
  local function show()
    require('sanderling.ui.message').tell(line, vim.log.levels.ERROR)
  end
  if vim.v.vim_did_enter == 1 then
    return show()
  end
  vim.api.nvim_create_autocmd('VimEnter', { -- an error before that asks for <Enter>
    once = true,
    desc = 'Agent: tell what is wrong with the options',
    callback = vim.schedule_wrap(show),
  })
end

--- With a mistake in these tables the screen is not quite as was wanted. With any other, something could be sent or run that
--- was not.
local HARMLESS = { chat = true, keys = true, approval = true }

---@param mistakes sanderling.config.Mistake[]
---@return string?
local function problem_of(mistakes)
  local lines = {} ---@type string[]
  for _, mistake in ipairs(mistakes) do
    if not HARMLESS[mistake.name:match('^%a+')] then
      lines[#lines + 1] = mistake.text
    end
  end
  if #lines == 0 then
    return nil
  end
  return ('The options are wrong, so nothing is sent:\n%s\n%s'):format(
    table.concat(lines, '\n'),
    'Correct them and call setup() again, or restart Neovim; then send the prompt again.'
  )
end

--- Take the options that are right, and say which are not. No error: the rest of what calls it would not run.
---@param options? table
function M.setup(options)
  local mistakes = {} ---@type sanderling.config.Mistake[]
  local is_table = options == nil or type(options) == 'table'
  if not is_table then
    local text = 'setup() takes a table of options, not ' .. vim.inspect(options)
    mistakes[1] = { name = 'setup()', text = text }
  end
  local right = check(is_table and options or {}, M.defaults, '', mistakes)
  M.options = vim.tbl_deep_extend('force', vim.deepcopy(M.defaults), right)
  if M.options.provider == 'scripted' and M.options.script == '' and #mistakes == 0 then
    local text = "provider 'scripted' needs the option 'script', the path of its file"
    mistakes[1] = { name = 'script', text = text }
  end
  M.mistakes, M.problem = mistakes, problem_of(mistakes)
  if #mistakes > 0 then
    tell(mistakes)
  end
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

--- The keys of an option: none, one or several.
---@param key sanderling.config.Key
---@return string[]
function M.list_keys(key)
  return type(key) == 'table' and key or { key or nil }
end

--- The first of the keys, as it is typed here, or what to do where there is none.
---@param key sanderling.config.Key
---@param otherwise string
---@return string
function M.key_name(key, otherwise)
  local first = M.list_keys(key)[1]
  if not first then
    return otherwise
  end
  return (
    first:gsub('<%a*[Ll]eader>', function(leader)
      return vim.fn.keytrans(vim.keycode(leader))
    end)
  )
end

---@return string
function M.log_file()
  return vim.fs.joinpath(vim.fn.stdpath('log'), 'sanderling.log')
end

return M
