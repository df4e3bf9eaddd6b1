--- :AgentInstall: builds the Python environment, with its progress in a terminal.
local config = require('sanderling.config')
local host = require('sanderling.host')

local M = {}

local CANDIDATES = { 'python3.14', 'python3.13', 'python3.12', 'python3.11', 'python3', 'python' }

--- An interpreter to build the environment with. The script itself refuses one that is too old.
---@return string?
local function base_python()
  local chosen = config.options.python
  for _, name in ipairs(chosen ~= '' and { vim.fs.normalize(chosen) } or CANDIDATES) do
    local path = vim.fn.exepath(name)
    if path ~= '' then
      return path
    end
  end
end

---@param on_done? fun(ok: boolean)
function M.run(on_done)
  local python = base_python()
  if not python then
    vim.notify('Sanderling needs Python 3.11 or newer: install it, then :AgentInstall again.', vim.log.levels.ERROR)
    return
  end
  host.stop()
  vim.cmd('botright 12split')
  vim.cmd.enew()
  local buf = vim.api.nvim_get_current_buf()
  vim.bo[buf].bufhidden = 'wipe'
  vim.fn.jobstart({
    python,
    vim.fs.joinpath(host.root(), 'scripts', 'install.py'),
    '--environment',
    host.data_environment(),
  }, {
    term = true,
    on_exit = function(_, code)
      local ok = code == 0
      vim.notify(
        ok and 'Sanderling is ready: :AgentChat' or 'Sanderling was not installed: the terminal says why.',
        ok and vim.log.levels.INFO or vim.log.levels.ERROR
      )
      if on_done then
        on_done(ok)
      end
    end,
  })
  vim.cmd.normal({ 'G', bang = true }) -- follow the output
end

--- Offer to build the environment, if that is what is missing.
function M.offer()
  if config.options.python ~= '' then
    return
  end
  vim.ui.select({ 'Build it now', 'Not now' }, {
    prompt = 'Sanderling needs its Python environment (about 150 MB):',
  }, function(choice)
    if choice == 'Build it now' then
      M.run()
    end
  end)
end

return M
