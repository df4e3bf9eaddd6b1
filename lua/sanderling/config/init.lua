--- Options from |vim.g.sanderling| and setup(), with checks that name what is wrong.
local M = {}

local icons = require('sanderling.ui.icons')
local key_table = require('sanderling.ui.keys')
local schema = require('sanderling.config.schema')

local key_rows = require('sanderling.config.keys')

key_table.register(key_rows)

M.POSITIONS = schema.choices('chat.position')
M.EFFORTS = schema.EFFORTS
M.MODES = { 'ask', 'auto', 'plan' }
M.FILES = { 'user', 'project' }

M.defaults = schema.defaults

---@class (exact) sanderling.config.Mistake
---@field name string the option
---@field text string
---@field guess? string
---@field guesses? string[] options that an unknown one was probably meant to be

---@type sanderling.config.Options
M.options = vim.deepcopy(M.defaults)

--- The valid options that were given.
local chosen = {}

--- The mistakes in the given options.
---@type sanderling.config.Mistake[]
M.mistakes = {}

--- Why these mistakes prevent sessions, if they do.
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
    guesses = guesses,
    text = ("unknown option '%s'; %s"):format(name, hint),
  }
end

--- Find unknown options and invalid values.
---@param options table
---@param defaults table
---@param prefix string
---@param mistakes sanderling.config.Mistake[] added to
---@return table right the valid options
local function check(options, defaults, prefix, mistakes)
  local right = {}
  local function look(inner, known, inner_prefix)
    check(inner, known, inner_prefix, mistakes)
  end
  local keys = vim.tbl_keys(options)
  table.sort(keys, function(a, b)
    return tostring(a) < tostring(b)
  end)
  for _, key in ipairs(keys) do
    local name, value, default = prefix .. tostring(key), options[key], defaults[key]
    local special = schema.checks[name:gsub('%[%d+%]', '[]')]
    local ok, expected = type(value) == type(default), 'a ' .. type(default)
    local count = #mistakes
    if special then
      ok, expected = special(value, look)
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

--- Check `options` against `path` of the defaults.
---@param options table
---@param path? 'chat'
function M.validate(options, path)
  local mistakes = {} ---@type sanderling.config.Mistake[]
  check(options, path and M.defaults[path] or M.defaults, path and path .. '.' or '', mistakes)
  if #mistakes > 0 then
    error('sanderling: ' .. mistakes[1].text, 0)
  end
end

--- Show the mistakes in one line, without a prompt for <Enter>. `:checkhealth` has the full sentences.
---@param mistakes sanderling.config.Mistake[]
local function tell(mistakes)
  local line = 'sanderling: ' .. mistakes[1].text
  if #mistakes > 1 then
    local names = vim.tbl_map(function(mistake)
      return mistake.guess and ('%s (%s?)'):format(mistake.name, mistake.guess) or mistake.name
    end, mistakes)
    line = ('sanderling: %d invalid options, see :Agent health: %s'):format(
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
  vim.api.nvim_create_autocmd('VimEnter', { -- an earlier error would prompt for <Enter>
    once = true,
    desc = 'Agent: show mistakes in the options',
    callback = vim.schedule_wrap(show),
  })
end

--- Does an option affect only the screen? A mistake in any other could send, run or pay for something unwanted.
---@param name string
---@return boolean
local function is_of_screen(name)
  for _, row in ipairs(schema.rows) do
    if row.name == name or vim.startswith(row.name, name .. '.') then
      return not row.host and row.name ~= 'python'
    end
  end
  return false
end

-- Parts of names of unknown options that may have been meant to forbid or limit something.
local SAFETY = vim.split(
  'allow ask approv budget cost den[yi] disabl env hook host key limit max mode$ net permi polic read role rule safe sandbox secur tool trust write',
  ' '
)

-- Tables and options that forbid, limit or redirect something: the user must not believe that one of them holds when it does not.
local GUARDS = vim.split(
  'permissions sandbox tools hooks roles role mode network budget_usd max_calls delegate mcp web_search skills worktree agents acp_terminals'
    .. ' provider providers base_url prices',
  ' '
)

--- Can the option forbid, limit or redirect something?
---@param name string
---@return boolean
local function is_guard(name)
  return vim.list_contains(GUARDS, name:match('^[%a_]+') or name)
end

--- Can the agent do without the option, so that no more is allowed, sent elsewhere or paid because of the mistake?
---@param mistake sanderling.config.Mistake
---@return boolean
local function is_harmless(mistake)
  local group = mistake.name:match('^[%a_]+') or mistake.name
  if not mistake.guesses then
    return is_of_screen(group)
  elseif M.defaults[group] ~= nil then
    return not is_guard(group)
  end
  local is_about_safety = vim.iter(SAFETY):any(function(part)
    return mistake.name:lower():find(part) ~= nil
  end)
  return not is_about_safety and not vim.iter(mistake.guesses):any(is_guard)
end

---@param mistakes sanderling.config.Mistake[]
---@return string?
local function problem_of(mistakes)
  local lines = {} ---@type string[]
  for _, mistake in ipairs(mistakes) do
    if not is_harmless(mistake) then
      lines[#lines + 1] = mistake.text
    end
  end
  if #lines == 0 then
    return nil
  end
  return ('Invalid options; nothing was sent:\n%s\n%s'):format(
    table.concat(lines, '\n'),
    'Fix the options, call setup() again, then resend.'
  )
end

-- The values of vim.g.sanderling and of setup().
local global, given = vim.g.sanderling, nil

---@type fun()[]
local subscribers = {}

---@param fn fun()
function M.subscribe(fn)
  subscribers[#subscribers + 1] = fn
end

--- Return the valid part of `options`.
---@param options any
---@param source string
---@param mistakes sanderling.config.Mistake[] added to
---@return table
local function taken(options, source, mistakes)
  if type(options) == 'table' then
    return check(options, M.defaults, '', mistakes)
  elseif options ~= nil then
    local text = ('%s takes a table of options, not %s'):format(source, vim.inspect(options))
    mistakes[#mistakes + 1] = { name = source, text = text }
  end
  return {}
end

--- Apply the valid options and report the others. This raises no error, which would stop the rest of the user's configuration.
local function reload()
  local mistakes = {} ---@type sanderling.config.Mistake[]
  local right = taken(global, 'vim.g.sanderling', mistakes)
  right = vim.tbl_deep_extend('force', right, taken(given, 'setup()', mistakes))
  local preset = { keys = key_rows.presets[vim.tbl_get(right, 'keys', 'preset')] or {} }
  M.options = vim.tbl_deep_extend('force', vim.deepcopy(M.defaults), preset, right)
  chosen = right
  key_table.chosen, icons.chosen = M.options.keys, M.options.icons
  key_table.set_global({ go = '<Plug>(AgentGo)' })
  if M.options.provider == 'scripted' and M.options.script == '' and #mistakes == 0 then
    local text = "provider 'scripted' needs the option 'script', the path of its file"
    mistakes[1] = { name = 'script', text = text }
  end
  M.mistakes, M.problem = mistakes, problem_of(mistakes)
  if #mistakes > 0 then
    tell(mistakes)
  end
  for _, fn in ipairs(subscribers) do
    fn()
  end
end

--- Replace the options of earlier calls. Options that are not given come from |vim.g.sanderling|.
---@param options? table
function M.setup(options)
  given = options
  reload()
end

--- Apply the new value of |vim.g.sanderling|, for its watcher.
---@param options any
function M.take_global(options)
  global = options ~= vim.NIL and options or nil
  reload()
end

--- Return the settings for the host: where its files are, and the given options. Others may be in a settings file.
---@return { state_dir: string, log_file: string, options: table }
function M.host_settings()
  local options = vim.empty_dict()
  for _, row in ipairs(schema.rows) do
    local value = vim.tbl_get(chosen, unpack(vim.split(row.name, '.', { plain = true })))
    if value ~= nil and row.to_host then
      value = row.to_host(value)
    end
    if row.host and value ~= nil then
      local group, name = row.name:match('^(.*)%.(.*)$')
      local target = options
      if group then
        options[group] = options[group] or {}
        target = options[group]
      end
      target[name or row.name] = value
    end
  end
  return {
    state_dir = vim.fs.joinpath(vim.fn.stdpath('state'), 'sanderling'),
    log_file = M.log_file(),
    options = options,
  }
end

M.list_keys, M.key_name = key_table.list, key_table.name

---@return string
function M.log_file()
  return vim.fs.joinpath(vim.fn.stdpath('log'), 'sanderling.log')
end

if global ~= nil then
  reload()
end
local take = "v:lua.require'sanderling.config'.take_global(get(change, 'new', v:null))"
vim.cmd(("call dictwatcheradd(g:, 'sanderling', {dict, key, change -> %s})"):format(take))

return M
