--- :AgentInstall: builds the Python environment and shows the progress in a terminal.
local config = require('sanderling.config')
local files = require('sanderling.access.files')
local host = require('sanderling.host')
local message = require('sanderling.ui.message')
local programs = require('sanderling.access.programs')

local M = { is_building = false }

---@alias sanderling.host.install.Reopen fun(is_wanted: boolean): boolean?

---@type sanderling.host.install.Reopen?
local reopen

---@param fn sanderling.host.install.Reopen reopens the chat, if there is one; is_wanted: enter its prompt
function M.register(fn)
  reopen = fn
end

local CANDIDATES = { 'python3', 'python3.14', 'python3.13', 'python3.12', 'python3.11', 'python' }

local IS_NEW_ENOUGH = 'import sys; sys.exit(sys.version_info < (3, 11))'

--- Return the first interpreter that runs and is new enough. Version managers may put commands on PATH that do not run.
---@return string?
local function base_python()
  local chosen = config.options.python
  for _, name in ipairs(chosen ~= '' and { vim.fs.normalize(chosen) } or CANDIDATES) do
    local path = vim.fn.exepath(name)
    -- -I: $PYTHONPATH, too, may lead to modules of the project.
    if path ~= '' and vim.system({ path, '-I', '-c', IS_NEW_ENOUGH }):wait().code == 0 then
      return path
    end
  end
end

--- Generate the help tags if they are missing, which some plugin managers do not do. The directory may be read-only.
local function make_help_tags()
  local doc = vim.fs.joinpath(host.root(), 'doc')
  if not vim.uv.fs_stat(vim.fs.joinpath(doc, 'tags')) then
    pcall(vim.cmd.helptags, {
      args = { vim.fn.fnameescape(doc) },
      mods = { silent = true, emsg_silent = true },
    })
  end
end

--- Close the terminal and reopen the chat.
---@param buf integer of the terminal
local function finish(buf)
  local was_here = vim.api.nvim_get_current_buf() == buf
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    pcall(vim.api.nvim_win_close, win, true) -- fails for the last window
  end
  make_help_tags()
  local is_shown = reopen and reopen(was_here)
  message.tell('Sanderling is ready.' .. (is_shown and '' or ' :AgentChat opens the chat.'))
end

--- Build or update the environment.
function M.run()
  local python = programs.outside(base_python)
  if not python then
    message.tell(
      'Sanderling needs Python 3.11 or newer on $PATH. Install it (on macOS: brew install python), then run :AgentInstall again.',
      vim.log.levels.ERROR
    )
    return
  end
  host.stop('The agent process was stopped for the installation. The next prompt restarts it.')
  vim.cmd('botright 12split')
  vim.cmd.enew()
  local buf = vim.api.nvim_get_current_buf()
  vim.bo[buf].bufhidden = 'wipe'
  files.guard(buf)
  M.is_building = true
  local script = vim.fs.joinpath(host.root(), 'scripts', 'install.py')
  local argv = { python, '-I', script, '--environment', host.environment_dir() }
  programs.outside(function() -- it runs uv, if there is one
    return vim.fn.jobstart(argv, {
      term = true,
      on_exit = function(_, code)
        M.is_building = false
        if code == 0 then
          finish(buf)
        else
          message.tell('Installation failed. The terminal shows why.', vim.log.levels.ERROR)
        end
      end,
    })
  end)
  vim.cmd.normal({ 'G', bang = true }) -- follow the output
end

--- Offer to build the environment if it is missing.
function M.offer()
  if config.options.python ~= '' or host.python() then
    return
  end
  local prompt = 'Sanderling needs its Python environment (about 110 MB):'
  message.confirm(prompt, { 'Build it now', 'Not now' }, function()
    M.run()
  end)
end

return M
