--- Redrawing the bars of all windows: each of them may show a session's state.
local M = {}

local drawn_ns = 0

function M.redraw()
  drawn_ns = vim.uv.hrtime()
  pcall(vim.cmd.redrawstatus, { bang = true })
end

---@return number ms since the last redraw from here
function M.age_ms()
  return (vim.uv.hrtime() - drawn_ns) / 1e6
end

return M
