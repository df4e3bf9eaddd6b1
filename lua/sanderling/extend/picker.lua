--- A plugin's own picker.
local M = {}

local registry = require('sanderling.extend.registry')

local pickers = registry.names('picker')

--- Show all lists in `open` instead of a picker plugin.
---@param open fun(list: sanderling.picker.List)
---@return sanderling.Handle
function M.add(open)
  if not vim.is_callable(open) then
    registry.refuse('picker', 'expected a function, got %s.', type(open))
  end
  return pickers:add({ name = 'picker', origin = registry.origin(), open = open })
end

---@return { origin: string, open: fun(list: sanderling.picker.List) }?
function M.current()
  return pickers.list[1]
end

return M
