--- Slash commands of plugins.
local M = {}

local lazy = require('sanderling.ui.lazy')

local offers = lazy('sanderling.extend.offers')
local registry = require('sanderling.extend.registry')
local sessions = lazy('sanderling.extend.session')

---@class (exact) sanderling.CommandOpts
---@field desc string shown in the menu of commands
---@field args? string shown after the name, such as '[day]'
---@field complete? sanderling.Complete|sanderling.Completion[] values of the argument
---@field run fun(args: string, session: sanderling.Session)

---@type sanderling.extend.registry.Fields
local FIELDS = {
  desc = { 'string', required = true },
  args = { 'string' },
  complete = { { 'function', 'table' } },
  run = { 'function', required = true },
}

---@class (exact) sanderling.extend.command.Command: sanderling.extend.registry.Named
---@field help string
---@field arguments string
---@field offers? sanderling.extend.offers.Offers
---@field run fun(arguments: string, session: { id: string })

local commands = registry.names('command')

---@param name string
---@param opts sanderling.CommandOpts
---@return sanderling.Handle
function M.add(name, opts)
  registry.check_name('command', name, require('sanderling.extend.reserved').commands)
  registry.check_fields('command', opts, FIELDS)
  local subject, origin, callback = '/' .. name, registry.origin(), opts.run
  local command = { name = name, origin = origin, help = opts.desc, arguments = opts.args or '' }
  function command.run(arguments, session)
    registry.call(command, subject, callback, arguments, sessions.of(session.id))
  end
  if opts.complete then
    command.offers = offers.new(origin, 'completion of ' .. subject, opts.complete)
  end
  return commands:add(command)
end

---@param name string
---@return sanderling.extend.command.Command?
function M.find(name)
  return commands:find(name)
end

---@return sanderling.extend.command.Command[]
function M.list()
  return commands.list
end

return M
