--- :AgentPlugins: the user's plugins, with their skills, MCP servers and problems, and keys to change them.
local M = {}

local Listing = require('sanderling.screens.listing')
local ask = require('sanderling.host.ask')
local icons = require('sanderling.ui.icons')
local message = require('sanderling.ui.message')
local stored = require('sanderling.session.stored')

local INDENT = '    '

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

---@param plugin sanderling.ShownPlugin
---@param add fun(line: string, hl: string)
local function write(plugin, add)
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

local listing ---@type sanderling.screens.Listing

---@param plugin sanderling.ShownPlugin
---@param what 'enable'|'disable'|'remove'
local function change(plugin, what)
  ask({ type = 'change_plugin', name = plugin.name, what = what }, function()
    message.tell(('%s: %sd for new sessions.'):format(plugin.name, what))
    listing:refresh()
  end, Listing.complain)
end

---@param plugin sanderling.ShownPlugin
local function toggle(plugin)
  if plugin.name ~= '' then
    change(plugin, plugin.is_disabled and 'enable' or 'disable')
  end
end

---@param plugin sanderling.ShownPlugin
local function remove(plugin)
  if plugin.name == '' then
    return
  elseif not plugin.is_ours then
    return Listing.complain(
      ('%s is shared with other agents: remove it there.'):format(plugin.path)
    )
  end
  local prompt = ('Remove the plugin %s:'):format(plugin.name)
  message.confirm(prompt, { 'Remove it', 'Keep it' }, function()
    change(plugin, 'remove')
  end)
end

listing = Listing.new({
  title = 'Plugins',
  place = 'plugins',
  none = 'No plugins. Run `sanderling plugin add DIRECTORY`, see :help sanderling-agent-plugins.',
  keys = {
    { 'plugins_check', 'check again' },
    { 'plugins_toggle', 'enable or disable' },
    { 'plugins_remove', 'remove' },
    { 'close', 'close' },
  },
  request = function()
    return { type = 'list_plugins', project = stored.project_here() }
  end,
  key = 'path',
  write = write,
  actions = {
    plugins_check = function()
      listing:refresh()
    end,
    plugins_toggle = toggle,
    plugins_remove = remove,
  },
})

--- Show the plugins.
function M.show()
  listing:show()
end

return M
