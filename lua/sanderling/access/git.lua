--- git outside the sandbox: nothing that the repository's configuration names may run.
local M = {}

local processes = require('sanderling.access.process')
local programs = require('sanderling.access.programs')

local TIMEOUT_MS = 10000 -- a FIFO in the work tree would block it forever
local FILTERS = [[^filter\..*\.(clean|smudge|process|required)$]]
local ENVIRONMENT = { GIT_OPTIONAL_LOCKS = '0', GIT_NO_LAZY_FETCH = '1', GIT_ALLOW_PROTOCOL = '' }

local SETTINGS = {
  { 'core.fsmonitor', 'false' },
  { 'core.hooksPath', '/dev/null' },
  { 'safe.bareRepository', 'explicit' }, -- otherwise a bare repository inside a clone brings its own configuration
}

--- Return an environment that adds these settings. The name of a filter can contain `=`, so `-c` would not work.
---@param settings [string, string][]
---@return table<string, string>
local function with(settings)
  local env = vim.deepcopy(ENVIRONMENT)
  local count = tonumber(vim.env.GIT_CONFIG_COUNT) or 0
  for _, setting in ipairs(settings) do
    env['GIT_CONFIG_KEY_' .. count], env['GIT_CONFIG_VALUE_' .. count] = unpack(setting)
    count = count + 1
  end
  env.GIT_CONFIG_COUNT = tostring(count)
  return env
end

--- Start git for a command that neither reads nor prints file contents, so that no filter of the repository runs.
---@param cwd string the project's root, or below it
---@param arguments string[]
---@param on_exit? fun(result: vim.SystemCompleted)
---@param more? [string, string][] settings
---@param timeout_ms? integer then it is stopped
---@return vim.SystemObj? process nil: git is not installed
function M.start(cwd, arguments, on_exit, more, timeout_ms)
  local git = programs.find('git', cwd)
  if not git then
    return nil
  end
  local argv = vim.list_extend({ git }, arguments)
  local env = with(vim.list_extend(vim.list_slice(SETTINGS), more or {}))
  env.PATH = programs.path(cwd)
  local ok, process =
    pcall(vim.system, argv, { cwd = cwd, env = env, timeout = timeout_ms }, on_exit)
  return ok and process or nil
end

---@param cwd string
---@param arguments string[]
---@param more? [string, string][] settings
---@return vim.SystemCompleted? nil: git is not installed
local function result_of(cwd, arguments, more)
  return processes.result(function(on_exit)
    return M.start(cwd, arguments, on_exit, more, TIMEOUT_MS)
  end)
end

--- Return settings that disable the repository's filters; the filters of the user's own configuration run.
---@param cwd string
---@return [string, string][]?
local function filters_off(cwd)
  local arguments = { 'config', '-z', '--show-scope', '--name-only', '--get-regexp', FILTERS }
  local result = result_of(cwd, arguments)
  if not result or result.code > 1 then -- 1: there are none
    return nil
  end
  local off, words = {}, vim.split(result.stdout, '\0', { plain = true })
  for i = 1, #words - 1, 2 do
    if words[i] ~= 'global' and words[i] ~= 'system' then
      off[#off + 1] = { words[i + 1], vim.endswith(words[i + 1], '.required') and 'false' or '' }
    end
  end
  return off
end

--- Is `cwd` in the repository's work tree? Its configuration could name any other directory.
---@param cwd string
---@return boolean
local function is_of_repository(cwd)
  local result = result_of(cwd, { 'rev-parse', '--is-inside-work-tree' })
  return result ~= nil and result.stdout == 'true\n'
end

--- Run `git diff` below `cwd`, with paths relative to it.
---@param cwd string
---@param arguments string[]
---@return string? difference nil: git failed
function M.diff(cwd, arguments)
  local off = is_of_repository(cwd) and filters_off(cwd)
  local options = { 'diff', '--relative', '--no-ext-diff', '--no-textconv', '--no-color' }
  -- To find changes in a submodule, git would use that submodule's configuration.
  vim.list_extend(options, { '--ignore-submodules=dirty', '--submodule=short' })
  vim.list_extend(options, { '--src-prefix=a/', '--dst-prefix=b/' })
  vim.list_extend(options, arguments)
  local more = vim.list_extend({ { 'core.quotepath', 'off' } }, off or {})
  local result = off and result_of(cwd, options, more)
  return result and result.code == 0 and result.stdout or nil
end

return M
