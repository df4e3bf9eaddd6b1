--- What is said below all windows.
local M = {}

--- Say something: cut, because a message that fills the line would ask for <Enter>.
---@param text string
---@param level? integer
function M.tell(text, level)
  vim.notify(vim.fn.strcharpart(text:gsub('\n.*', ' …'), 0, vim.o.columns - 15), level)
end

return M
