--- :checkhealth sanderling
local config = require('sanderling.config')
local host = require('sanderling.host')
local key_table = require('sanderling.config.keys')
local keys = require('sanderling.ui.keys')
local log = require('sanderling.host.log')
local programs = require('sanderling.access.programs')
local stored = require('sanderling.session.stored')

local M = {}

local CHECK_TIMEOUT_MS = 15000 -- longer than the deadlines of cli/health.py
local API_TIMEOUT_MS = 40000
local TMUX_TIMEOUT_MS = 1000
local STDERR_SHOWN = 10
local MAX_ESCAPE_MS = 50

local asks_api = false

---@class (exact) sanderling.health.Line
---@field level 'ok'|'info'|'warn'|'error'
---@field text string
---@field advice string[]

---@class (exact) sanderling.health.Section
---@field title string
---@field lines sanderling.health.Line[]

--- Return the report of `sanderling check`, for the settings of this Neovim.
---@param python string
---@return sanderling.health.Section[]? sections
---@return string? error
local function ask_python(python)
  local argv = host.argv(python, 'sanderling')
  vim.list_extend(argv, { 'check', '--json', '--setup', '--project', stored.project_here() })
  if asks_api then
    argv[#argv + 1] = '--api'
  end
  local stdin = vim.mpack.encode(config.host_settings())
  local ok, process = pcall(vim.system, argv, { text = true, stdin = stdin })
  if not ok then
    return nil, tostring(process)
  end
  local result = process:wait(asks_api and API_TIMEOUT_MS or CHECK_TIMEOUT_MS)
  local decoded, report = pcall(vim.json.decode, result.stdout)
  if decoded and type(report) == 'table' and report.sections then
    return report.sections
  end
  local lines = vim.split(vim.trim(result.stderr), '\n')
  local last = lines[#lines] ~= '' and lines[#lines] or ('exit status %d'):format(result.code)
  return nil, result.code == 124 and 'no answer' or last
end

--- Warn if <Esc> and the next key are read as Alt and that key, even if the user types them one after the other.
local function check_escape()
  local names, advice = {}, {}
  local ok, result = pcall(function()
    local tmux = vim.env.TMUX and programs.find('tmux', stored.project_here())
    return tmux and vim.system({ tmux, 'show-options', '-sv', 'escape-time' }):wait(TMUX_TIMEOUT_MS)
  end)
  local escape_time = ok and result and tonumber(result.stdout)
  if escape_time and escape_time > MAX_ESCAPE_MS then
    names[#names + 1] = ('tmux (escape-time %d)'):format(escape_time)
    advice[#advice + 1] = 'In a shell: tmux set -s escape-time 10; see |sanderling-tmux|'
  end
  local delay
  if vim.o.ttimeout and vim.o.ttimeoutlen > MAX_ESCAPE_MS then
    delay = ("'ttimeoutlen' %d"):format(vim.o.ttimeoutlen)
  elseif not vim.o.ttimeout and vim.o.timeout and vim.o.timeoutlen > MAX_ESCAPE_MS then
    delay = ("'timeoutlen' %d, for 'nottimeout'"):format(vim.o.timeoutlen)
  end
  if delay then
    names[#names + 1] = ('Neovim (%s)'):format(delay)
    advice[#advice + 1] = 'In Neovim: set ttimeout ttimeoutlen=50'
  end
  if #names > 0 then
    advice[#advice + 1] = 'Until then, <Esc> and d can deny a question'
    local text = '<Esc> followed quickly by a key is read as Alt and that key: '
    vim.health.warn(text .. table.concat(names, ', '), advice)
  else
    vim.health.ok('<Esc> followed by a key is not read as Alt')
  end
end

-- Where a map of the user's takes precedence: buffers and windows that are not Sanderling's.
local SHARED = { 'file', 'edit', 'asked', 'anywhere' }

--- Name the keys that a map of the user's, or a prefix of them, keeps from working in files.
local function check_keys()
  for _, row in ipairs(key_table.rows) do
    local place = vim.iter(SHARED):find(function(each)
      return row.places[each] ~= nil
    end)
    for _, lhs in ipairs(place and keys.list(config.options.keys[row.option]) or {}) do
      local mode = row.places[place]:sub(1, 1)
      if keys.is_taken(mode, lhs) and vim.fn.maparg(lhs, mode, false, true).buffer ~= 1 then
        vim.health.info(
          ('%s is mapped, so it does not do this: %s. Map <Plug>(AgentKey-%s) instead, or set the option keys.%s'):format(
            lhs,
            row.desc:gsub('; takes a count$', ''),
            row.option,
            row.option
          )
        )
      end
    end
  end
end

local function check_neovim()
  vim.health.start('Neovim')
  local version = tostring(vim.version())
  if vim.fn.has('nvim-0.11') == 1 then
    vim.health.ok(version)
  else
    vim.health.error(version .. ' is too old', 'Update Neovim to 0.11 or newer')
  end
  check_escape()
  check_keys()
end

--- Return what is wrong with the environment as a whole. scripts/install.py writes a stamp file as its last step.
---@param python string
---@return string?
local function environment_problem(python)
  local environment = vim.fs.dirname(vim.fs.dirname(python))
  local ok, stamp = pcall(function()
    local lines = vim.fn.readfile(vim.fs.joinpath(environment, 'sanderling-stamp'))
    return vim.json.decode(table.concat(lines, '\n'))
  end)
  local inputs = ''
  for _, name in ipairs({ 'pyproject.toml', 'constraints.txt', 'scripts/sanderling.sh' }) do
    inputs = inputs .. vim.fn.readblob(vim.fs.joinpath(host.root(), name))
  end
  if not ok then
    return 'the environment is incomplete'
  elseif stamp.inputs ~= vim.fn.sha256(inputs) then
    return 'the environment belongs to another version of the plugin'
  end
end

--- Show which environment is in use and what is wrong with it as a whole.
---@param python? string
---@param err? string
local function check_environment(python, err)
  vim.health.start('Python environment')
  if not python then
    vim.health.error(assert(err))
    return
  end
  vim.health.info(python)
  local problem = config.options.python == '' and environment_problem(python)
  if problem then
    vim.health.warn(problem, 'Run :AgentInstall to update it')
  end
end

---@param section sanderling.health.Section
local function show(section)
  vim.health.start(section.title)
  if section.title == 'Configuration' then
    for _, mistake in ipairs(config.mistakes) do
      vim.health.error(mistake.text)
    end
  end
  for _, line in ipairs(section.lines) do
    vim.health[line.level](line.text, #line.advice > 0 and line.advice or nil)
  end
end

--- Show what is known without Python.
local function show_without_python()
  show({ title = 'Configuration', lines = {} })
  vim.health.info('config.toml was not checked')
  vim.health.start('Model')
  local is_set = (vim.env.ANTHROPIC_API_KEY or '') ~= ''
  vim.health.info(('ANTHROPIC_API_KEY is %s'):format(is_set and 'set' or 'not set'))
  vim.health.start('Sandbox')
  if vim.tbl_contains({ 'Linux', 'Darwin' }, vim.uv.os_uname().sysname) then
    vim.health.info('not checked: Python does not run')
  else
    vim.health.error('the sandbox needs Linux or macOS: commands are blocked here')
  end
end

local function check_host()
  vim.health.start('Agent process')
  if host.is_running() then
    local began = vim.uv.hrtime()
    local ok, pid = host.ping()
    if ok then
      vim.health.ok(('process %d answers in %.1f ms'):format(pid, (vim.uv.hrtime() - began) / 1e6))
    else
      vim.health.error('running, but does not answer: ' .. tostring(pid), 'See the log: :Agent log')
    end
  else
    vim.health.info('not running; the first use starts it')
  end
  if #log.lines > 0 then
    local last = vim.list_slice(log.lines, math.max(1, #log.lines - STDERR_SHOWN + 1))
    vim.health.warn(
      'last errors of the agent process and of plugins:\n' .. table.concat(last, '\n')
    )
  end
  vim.health.info('log: ' .. config.log_file())
end

function M.check()
  check_neovim()
  local python, err = host.python()
  check_environment(python, err)
  local sections
  if python then
    sections, err = ask_python(python)
    if not sections then
      local advice = { 'Run :AgentInstall', 'If that does not help, see :Agent log' }
      vim.health.error('Sanderling does not run there: ' .. assert(err), advice)
    end
  end
  if sections then
    vim.iter(sections):each(show)
  else
    show_without_python()
  end
  check_host()
end

---@param opts { ask_api: boolean }
function M.show(opts)
  asks_api = opts.ask_api
  vim.cmd.checkhealth('sanderling')
  asks_api = false
end

return M
