--- The quickfix list as the plugin sets and opens it.
local M = {}

local scratch = require('sanderling.ui.scratch')

local MAX_ROWS = 10 -- the default height of :copen

--- Make `items` the quickfix list.
---@param title string
---@param items vim.quickfix.entry[]
---@param context? any by which its owner knows it again
function M.set(title, items, context)
  scratch.quietly(function() -- this creates an unloaded buffer for each entry's file
    vim.fn.setqflist({}, ' ', { title = title, items = items, context = context })
  end)
end

--- Make `items` the quickfix list and open it below all windows, no higher than its entries need.
---@param title string
---@param items vim.quickfix.entry[]
---@param context? any
function M.show(title, items, context)
  M.set(title, items, context)
  vim.cmd(('botright copen %d'):format(math.min(#items, MAX_ROWS)))
end

return M
