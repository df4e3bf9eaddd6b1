--- :AgentPlugins: the user's plugins, with their skills, MCP servers and problems, and keys to change them.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local float = require('sanderling.ui.float')
local icons = require('sanderling.ui.icons')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local scratch = require('sanderling.ui.scratch')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local INDENT = '    '
local NONE =
  'No plugins. Run `sanderling plugin add DIRECTORY`, see :help sanderling-agent-plugins.'
local NAMED = {
  { 'plugins_check', 'check again' },
  { 'plugins_toggle', 'enable or disable' },
  { 'plugins_remove', 'remove' },
  { 'close', 'close' },
}
local ns = api.nvim_create_namespace('sanderling_plugins')

---@class (exact) sanderling.screens.plugins.Page
---@field buf integer
---@field win integer
---@field plugins table<integer, sanderling.ShownPlugin> by lnum

---@type sanderling.screens.plugins.Page?
local shown

---@param plugin sanderling.ShownPlugin
---@return string line
---@return string hl
local function title_of(plugin)
  local facts = { plugin.version, plugin.is_disabled and 'disabled' or nil, plugin.path }
  local rest = {}
  for i = 1, 3 do
    if facts[i] and facts[i] ~= '' then
      rest[#rest + 1] = facts[i]
    end
  end
  local sign, hl = icons.passed, 'AgentBusy'
  if not plugin.name or plugin.name == '' then
    sign, hl = icons.failed, 'AgentError'
  elseif plugin.is_disabled then
    sign, hl = icons.held, 'AgentStatus'
  end
  local name = plugin.name ~= '' and plugin.name .. '  ' or ''
  return ('%s %s%s'):format(sign, name, table.concat(rest, icons.separator)), hl
end

---@param plugins sanderling.ShownPlugin[]
---@return string[] lines
---@return table<integer, sanderling.ShownPlugin> of each line, by lnum
---@return string[] hls of each line
local function text_of(plugins)
  local lines, of, hls = {}, {}, {}
  for _, plugin in ipairs(plugins) do
    local function add(line, hl)
      lines[#lines + 1] = words.plain(line)
      of[#lines], hls[#lines] = plugin, hl
    end
    add(title_of(plugin))
    if (plugin.description or '') ~= '' then
      add(INDENT .. plugin.description, 'AgentStatus')
    end
    for _, each in ipairs(plugin.skills or {}) do
      add(INDENT .. 'skill   ' .. each, 'AgentStatus')
    end
    for _, each in ipairs(plugin.servers or {}) do
      add(INDENT .. 'server  ' .. each, 'AgentStatus')
    end
    for _, each in ipairs(plugin.problems or {}) do
      add(INDENT .. each, 'AgentWarning')
    end
  end
  return lines, of, hls
end

--- Draw the list; the cursor stays on its plugin.
---@param plugins sanderling.ShownPlugin[]
local function fill(plugins)
  local self = assert(shown)
  local before = self.plugins[vim.fn.line('.', self.win)]
  local lines, of, hls = text_of(plugins)
  scratch.set_buf_options(self.buf, { modifiable = true })
  api.nvim_buf_set_lines(self.buf, 0, -1, true, lines)
  scratch.set_buf_options(self.buf, { modifiable = false })
  api.nvim_buf_clear_namespace(self.buf, ns, 0, -1)
  for lnum, hl in ipairs(hls) do
    local opts = { end_col = #lines[lnum], hl_group = hl }
    api.nvim_buf_set_extmark(self.buf, ns, lnum - 1, 0, opts)
  end
  self.plugins = of
  for lnum in vim.spairs(of) do
    if before and of[lnum].path == before.path then
      return api.nvim_win_set_cursor(self.win, { lnum, 0 })
    end
  end
end

---@param sentence string
local function complain(sentence)
  message.tell(sentence, vim.log.levels.ERROR)
end

---@param on_answer fun(plugins: sanderling.ShownPlugin[], is_here: boolean)
local function list(on_answer)
  ask({ type = 'list_plugins', project = stored.project_here() }, function(found, is_here)
    on_answer(found.plugins, is_here)
  end, complain)
end

local function check()
  list(function(plugins)
    if not shown then
      return
    elseif #plugins == 0 then
      api.nvim_buf_delete(shown.buf, { force = true })
      message.tell(NONE)
    else
      fill(plugins)
    end
  end)
end

---@param plugin sanderling.ShownPlugin
---@param what 'enable'|'disable'|'remove'
local function change(plugin, what)
  ask({ type = 'change_plugin', name = plugin.name, what = what }, function()
    message.tell(('%s: %sd for new sessions.'):format(plugin.name, what))
    check()
  end, complain)
end

---@param fn fun(plugin: sanderling.ShownPlugin)
---@return fun()
local function with_plugin(fn)
  return function()
    local plugin = assert(shown).plugins[vim.fn.line('.')]
    if plugin and plugin.name ~= '' then
      fn(plugin)
    end
  end
end

local toggle = with_plugin(function(plugin)
  change(plugin, plugin.is_disabled and 'enable' or 'disable')
end)

local remove = with_plugin(function(plugin)
  if not plugin.is_ours then
    return complain(('%s is shared with other agents: remove it there.'):format(plugin.path))
  end
  local prompt = ('Remove the plugin %s:'):format(plugin.name)
  message.confirm(prompt, { 'Remove it', 'Keep it' }, function()
    change(plugin, 'remove')
  end)
end)

---@param plugins sanderling.ShownPlugin[]
local function open(plugins)
  local lines, of = text_of(plugins)
  local buf, win = page.view('Plugins', lines, 'plugins', {
    place = 'plugins',
    footer = float.naming(NAMED),
    on_close = function()
      shown = nil
    end,
    actions = { plugins_check = check, plugins_toggle = toggle, plugins_remove = remove },
  })
  shown = { buf = buf, win = win, plugins = of }
  fill(plugins)
end

--- Show the plugins.
function M.show()
  if shown then
    return api.nvim_set_current_win(shown.win)
  end
  list(function(plugins, is_here)
    if #plugins == 0 then
      message.tell(NONE)
    elseif not is_here then
      message.tell('Plugins loaded. Run :AgentPlugins again to show them.')
    else
      open(plugins)
    end
  end)
end

return M
