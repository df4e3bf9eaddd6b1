--- Redrawing the bars of all windows: each of them may show a session's state.
local M = {}

local drawn_ns = 0
local mode = '' ---@type string

--- Return Vim's mode. While Neovim draws the bar of another window than the current one, it reports no visual mode, so
--- this is the mode of the last redraw.
---@return string
function M.mode()
  return mode
end

function M.redraw()
  mode = vim.api.nvim_get_mode().mode
  drawn_ns = vim.uv.hrtime()
  pcall(vim.cmd.redrawstatus, { bang = true })
end

---@return number ms since the last redraw from here
function M.age_ms()
  return (vim.uv.hrtime() - drawn_ns) / 1e6
end

return M
