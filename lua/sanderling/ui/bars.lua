--- The bars of all windows, drawn anew: a session's state is in all of them.
local M = {}

local drawn_ns = 0

function M.redraw()
  drawn_ns = vim.uv.hrtime()
  pcall(vim.cmd.redrawstatus, { bang = true })
end

---@return number ms since they were drawn by us
function M.age_ms()
  return (vim.uv.hrtime() - drawn_ns) / 1e6
end

return M
