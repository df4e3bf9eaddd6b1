--- :Agent config: the settings files. A new one begins as a template of comments; after each write, mistakes are shown as diagnostics.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local files = require('sanderling.access.files')
local host = require('sanderling.host')
local message = require('sanderling.ui.message')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_config')
local augroup = api.nvim_create_augroup('sanderling_config', {})

local WRITTEN = {
  user = 'Takes effect in new sessions: :AgentNew.',
  project = 'Takes effect once trusted: :Agent trust.',
}

--- Return the path of the user's settings, as in src/sanderling/config/file.py.
---@return string
function M.user_file()
  local base = vim.env.XDG_CONFIG_HOME or ''
  base = vim.startswith(base, '/') and base or vim.fs.normalize('~/.config')
  return vim.fs.joinpath(base, 'sanderling', 'config.toml')
end

---@class (exact) sanderling.screens.config_file.Mistake
---@field file string
---@field line integer 0 if unknown
---@field message string
---@field text string the message with its position

--- Show the mistakes of a file at their lines.
---@param buf integer
---@param which 'user'|'project'
---@param mistakes sanderling.screens.config_file.Mistake[]
local function show(buf, which, mistakes)
  local found = {} ---@type vim.Diagnostic.Set[]
  for _, mistake in ipairs(mistakes) do
    local is_own = mistake.file ~= '.sanderling.toml'
    if is_own == (which == 'user') then
      found[#found + 1] = {
        lnum = math.min(math.max(mistake.line, 1), api.nvim_buf_line_count(buf)) - 1,
        col = 0,
        message = mistake.message,
        source = 'sanderling',
      }
    end
  end
  vim.diagnostic.set(ns, buf, found)
  if #found > 0 then
    local text = ('%s, so no session can start: %s'):format(
      words.counted(#found, 'mistake'),
      found[1].message
    )
    message.tell(words.plain(text), vim.log.levels.WARN)
  else
    message.tell(WRITTEN[which])
  end
end

--- Check the file on disk.
---@param buf integer
---@param which 'user'|'project'
---@param project string
local function check(buf, which, project)
  local python = host.python()
  if not python then
    return -- starting a session reports this
  end
  local arguments = { 'config', 'check', '--json', '--setup', '--project', project }
  local argv = vim.list_extend(host.argv(python, 'sanderling'), arguments)
  local stdin = vim.mpack.encode(config.host_settings())
  vim.system(argv, { stdin = stdin }, function(result)
    vim.schedule(function()
      local ok, report = pcall(vim.json.decode, result.stdout)
      if ok and api.nvim_buf_is_valid(buf) then
        show(buf, which, report.mistakes)
      elseif not ok then
        message.tell(words.plain(result.stderr), vim.log.levels.WARN)
      end
    end)
  end)
end

---@param buf integer
---@param which 'user'|'project'
---@param project string
local function watch(buf, which, project)
  api.nvim_clear_autocmds({ group = augroup, buffer = buf })
  api.nvim_create_autocmd('BufWritePre', {
    group = augroup,
    buffer = buf,
    desc = 'Agent: make the directory of the settings',
    callback = function()
      vim.fn.mkdir(vim.fs.dirname(api.nvim_buf_get_name(buf)), 'p')
    end,
  })
  api.nvim_create_autocmd('BufWritePost', {
    group = augroup,
    buffer = buf,
    desc = 'Agent: check the settings',
    callback = function()
      check(buf, which, project)
    end,
  })
end

--- Open the user's settings, or the project's.
---@param which string
function M.open(which)
  which = which == '' and 'user' or which
  if not vim.list_contains(config.FILES, which) then
    error(words.not_one_of('Agent config', config.FILES, which), 0)
  end
  ---@cast which 'user'|'project'
  local project = stored.project_here()
  local path = which == 'user' and M.user_file() or vim.fs.joinpath(project, '.sanderling.toml')
  path = vim.uv.fs_realpath(path) or path
  files.open({ path = path })
  local buf = api.nvim_get_current_buf()
  if api.nvim_buf_get_name(buf) ~= path then
    return -- opening failed, which was reported
  end
  local is_empty = vim.deep_equal(api.nvim_buf_get_lines(buf, 0, -1, true), { '' })
  if is_empty and not vim.uv.fs_stat(path) then
    local template = vim.fs.joinpath(host.root(), 'src/sanderling/config', which .. '.toml')
    api.nvim_buf_set_lines(buf, 0, -1, true, vim.fn.readfile(template))
  end
  watch(buf, which, project)
end

return M
