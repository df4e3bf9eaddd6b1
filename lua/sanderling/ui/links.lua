--- Pages that a browser shows.
local M = {}

local message = require('sanderling.ui.message')

--- Open `url` in the person's browser; where there is none, they read it in :messages.
---@param url string
function M.open(url)
  if not url:find('^https?://%S+$') then
    message.tell('That is not the address of a page: it was not opened.', vim.log.levels.WARN)
    return
  end
  local ok, _, err = pcall(vim.ui.open, url)
  if not ok or err then
    message.tell('No browser could be opened: ' .. url, vim.log.levels.WARN)
  end
end

return M
