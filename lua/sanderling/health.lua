--- :checkhealth sanderling
local config = require('sanderling.config')
local host = require('sanderling.host')
local log = require('sanderling.host.log')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local M = {}

local CHECK_TIMEOUT_MS = 10000
local API_TIMEOUT_MS = 30000
local KEYCHAIN_TIMEOUT_MS = 10000
local TMUX_TIMEOUT_MS = 1000
local STDERR_SHOWN = 10
local MAX_ESCAPE_MS = 50

local KEY_ADVICE =
  'Store one with :Agent login, or set ANTHROPIC_API_KEY in the environment that starts Neovim'

local asks_api = false

--- Run `python -m sanderling` with these arguments and decode its JSON output.
---@param python string
---@param arguments string[]
---@param timeout integer milliseconds
---@param stdin? string
---@return table? report
---@return string? error
local function ask_python(python, arguments, timeout, stdin)
  local argv = vim.list_extend(host.argv(python, 'sanderling'), arguments)
  local ok, process = pcall(vim.system, argv, { text = true, stdin = stdin })
  if not ok then
    return nil, tostring(process)
  end
  local result = process:wait(timeout)
  local decoded, report = pcall(vim.json.decode, result.stdout)
  if not decoded then
    local lines = vim.split(vim.trim(result.stderr), '\n')
    return nil, result.code == 124 and 'no answer' or lines[#lines]
  end
  return report
end

--- Return the settings in effect, including those from files, and the mistakes in them.
---@param python string
---@return table? report
---@return string? error
local function ask_configuration(python)
  local arguments = { 'config', 'check', '--json', '--setup', '--project', stored.project_here() }
  local stdin = vim.mpack.encode(config.host_settings())
  return ask_python(python, arguments, CHECK_TIMEOUT_MS, stdin)
end

---@class (exact) sanderling.health.Model see providers/choice.py
---@field provider string
---@field model string
---@field key 'environment'|'keychain'|'profile'|'not needed'|'missing'
---@field variable string environment variable for the key
---@field is_fallback boolean no provider has a key

---@param chosen? sanderling.health.Model
---@return boolean `sanderling check --api` asks the API of this model; it knows Claude's only
local function is_asked(chosen)
  return not chosen or chosen.is_fallback or chosen.provider == 'anthropic'
end

---@param python string
---@param options table
---@param chosen? sanderling.health.Model
---@return table? report
---@return string? error
local function ask_installation(python, options, chosen)
  local arguments, timeout = { 'check' }, CHECK_TIMEOUT_MS
  if asks_api and is_asked(chosen) then
    local model = chosen and not chosen.is_fallback and chosen.model or options.model
    vim.list_extend(arguments, { '--api', '--model', model, '--base-url', options.base_url })
    timeout = API_TIMEOUT_MS
  end
  return ask_python(python, arguments, timeout)
end

--- Warn if <Esc> and the next key are read as Alt and that key, even if the user types them one after the other.
local function check_escape()
  local names = {}
  local ok, result = pcall(function()
    return vim.env.TMUX
      and vim.system({ 'tmux', 'show-options', '-sv', 'escape-time' }):wait(TMUX_TIMEOUT_MS)
  end)
  local escape_time = ok and result and tonumber(result.stdout)
  if escape_time and escape_time > MAX_ESCAPE_MS then
    names[#names + 1] = ('tmux (escape-time %d)'):format(escape_time)
  end
  if vim.o.ttimeout and vim.o.ttimeoutlen > MAX_ESCAPE_MS then
    names[#names + 1] = ("Neovim ('ttimeoutlen' %d)"):format(vim.o.ttimeoutlen)
  elseif not vim.o.ttimeout and vim.o.timeout and vim.o.timeoutlen > MAX_ESCAPE_MS then
    names[#names + 1] = ("Neovim ('timeoutlen' %d, for 'nottimeout')"):format(vim.o.timeoutlen)
  end
  if #names > 0 then
    vim.health.warn(
      ('<Esc> followed quickly by a key is read as Alt and that key: %s'):format(
        table.concat(names, ', ')
      ),
      'Run `tmux set -s escape-time 10`, `:set ttimeout ttimeoutlen=50`. Otherwise `<Esc>d` can deny a question'
    )
  else
    vim.health.ok('<Esc> followed by a key is not read as Alt')
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

---@param report table
local function check_packages(report)
  vim.health.ok(('Python %s, Sanderling %s'):format(report.python, report.sanderling))
  for name, version in vim.spairs(report.packages) do
    if version == '' then
      vim.health.error(name .. ' is missing', 'Run :AgentInstall')
    else
      vim.health.ok(('%s %s'):format(name, version))
    end
  end
end

---@param name string
---@return string
local function in_state_dir(name)
  return vim.fs.joinpath(config.host_settings().state_dir, name)
end

--- Ask the host where API keys are stored. The keychain may ask the user to unlock it.
local function check_keychain()
  local answer
  host.request({ type = 'login' }, function(result)
    answer = result
  end)
  vim.wait(KEYCHAIN_TIMEOUT_MS, function()
    return answer ~= nil
  end)
  if not answer then
    vim.health.warn('the keychain does not answer', 'Unlock it')
  elseif answer.error then
    vim.health.info(answer.error)
  else
    vim.health.ok('API keys can be stored in ' .. answer.backend)
  end
end

---@param report? table
---@param err? string
local function check_configuration(report, err)
  vim.health.start('Configuration')
  for _, mistake in ipairs(config.mistakes) do
    vim.health.error(mistake.text)
  end
  if not report then
    vim.health.error('cannot be checked: ' .. err)
    return
  end
  for name, state in vim.spairs(report.files) do
    vim.health.info(('%s: %s'):format(name, state))
  end
  for _, mistake in ipairs(report.mistakes) do
    vim.health.error(mistake.text, ':Agent config opens the file')
  end
end

local KEYS = {
  environment = 'an API key is in the environment',
  keychain = 'an API key is in the keychain',
  profile = 'the environment names a profile instead of an API key',
  ['not needed'] = 'this provider needs no API key',
}

---@param chosen? sanderling.health.Model nil: there are mistakes in the configuration
local function check_key(chosen)
  if not chosen then
    vim.health.info('not checked: fix the configuration first')
    return
  end
  vim.health.info(('provider %s, model %s'):format(chosen.provider, chosen.model))
  if chosen.is_fallback then
    vim.health.warn('there is no API key, so the demo model answers', KEY_ADVICE)
  elseif chosen.key == 'missing' then
    local name = chosen.provider == 'anthropic' and '' or ' ' .. chosen.provider
    local advice = KEY_ADVICE:gsub('ANTHROPIC_API_KEY', chosen.variable)
    vim.health.error('there is no API key', (advice:gsub(':Agent login', '%0' .. name)))
  else
    vim.health.ok(KEYS[chosen.key])
  end
end

---@param report table
---@param chosen? sanderling.health.Model
local function check_model(report, chosen)
  vim.health.start('Model')
  check_key(chosen)
  for _, warning in ipairs(report.warnings) do
    vim.health.warn(warning)
  end
  if asks_api then
    check_keychain()
  end
  if report.api and report.api.is_reachable then
    vim.health.ok('the API answers and knows ' .. report.api.model)
  elseif report.api then
    vim.health.error(report.api.message, report.api.remedy)
  elseif chosen and not is_asked(chosen) then
    local text = 'whether it answers was not checked; :Agent provider_test %s does so'
    vim.health.info(text:format(chosen.provider))
  else
    vim.health.info('the API and the keychain were not checked; :Agent health! checks them')
  end
end

local RUN_WITHOUT =
  ':Agent sandbox off runs commands without a sandbox in one session, after you confirm'

---@param report table
local function describe_sandbox(report)
  for _, finding in ipairs(report.findings) do
    local advice = finding.advice
    if report.level == 'none' and finding.level == 'error' then
      table.insert(advice, RUN_WITHOUT)
    end
    vim.health[finding.level](finding.text, #advice > 0 and advice or nil)
  end
  vim.health.info(
    'network ' .. report.network .. ' at the start of a session; :AgentNet changes it'
  )
end

---@param python? string
---@param min_level string
local function check_sandbox(python, min_level)
  vim.health.start('Sandbox')
  if vim.uv.os_uname().sysname ~= 'Linux' then
    local text = 'the sandbox needs Linux: commands are blocked here'
    vim.health.error(text, RUN_WITHOUT)
  elseif python then
    local arguments = { 'sandbox', 'status', '--json', '--min-level', min_level }
    local report, err = ask_python(python, arguments, CHECK_TIMEOUT_MS)
    if report then
      describe_sandbox(report)
    else
      vim.health.error('state unknown: ' .. err)
    end
  else
    vim.health.info('not checked: the Python environment is missing')
  end
end

---@param bytes integer
---@return string
local function size_of(bytes)
  return ('%.1f MB'):format(bytes / 1e6)
end

--- Report the number and size of files in a subdirectory of the state directory, and whether it is writable.
---@param what string
---@param noun string
---@param name string
local function describe_store(what, noun, name)
  local path, count, bytes = in_state_dir(name), 0, 0
  for file, type in vim.fs.dir(path) do
    if type == 'file' then
      local stat = vim.uv.fs_stat(vim.fs.joinpath(path, file))
      count, bytes = count + 1, bytes + (stat and stat.size or 0)
    end
  end
  local amount = ('%s, %s'):format(words.counted(count, noun), size_of(bytes))
  vim.health.info(('%s: %s (%s)'):format(what, path, amount))
  if vim.uv.fs_stat(path) and not vim.uv.fs_access(path, 'W') then
    vim.health.error(path .. ' cannot be written', 'Make it writable for the user who runs Neovim')
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
    vim.health.warn('last lines on stderr:\n' .. table.concat(last, '\n'))
  end
  vim.health.start('Files')
  vim.health.info('log: ' .. config.log_file())
  describe_store('sessions', 'file', 'sessions')
  describe_store('rules stored by "always"', 'project', 'rules')
  describe_store('trusted files', 'project', 'trust')
end

function M.check()
  check_neovim()
  vim.health.start('Python environment')
  local python, err = host.python()
  local report, configuration, config_err
  local chosen ---@type sanderling.health.Model?
  local options = config.options
  if python then
    configuration, config_err = ask_configuration(python)
    options = vim.tbl_extend('force', options, configuration and configuration.settings or {})
    vim.health.info(python)
    local problem = config.options.python == '' and environment_problem(python)
    if problem then
      vim.health.warn(problem, 'Run :AgentInstall to update it')
    end
    chosen = configuration and configuration.model
    report, err = ask_installation(python, options, chosen)
  end
  if report then
    check_packages(report)
    check_configuration(configuration, config_err)
    check_model(report, chosen)
  else
    vim.health.error(assert(err))
  end
  check_sandbox(report and python, options.sandbox.min_level)
  check_host()
end

---@param opts { ask_api: boolean }
function M.show(opts)
  asks_api = opts.ask_api
  vim.cmd.checkhealth('sanderling')
  asks_api = false
end

return M
