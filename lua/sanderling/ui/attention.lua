--- Whether the user is still where they were when they asked for something. A late answer must not take keys or open a
--- window elsewhere.
local M = {}

--- Keys typed sooner than this after a question appears were meant for something else.
M.GRACE_NS = 300 * 1e6

local api = vim.api

---@return integer win
---@return integer buf
---@return string mode
local function place()
  return api.nvim_get_current_win(), api.nvim_get_current_buf(), api.nvim_get_mode().mode
end

--- Remember where the user is and what they have typed.
---@return fun(): boolean is_here the user has neither moved nor typed
function M.watch()
  local win, buf, mode = place()
  local tick = api.nvim_buf_get_changedtick(buf)
  return function()
    local win_now, buf_now, mode_now = place()
    local is_typing = mode:find('^[iR]') and api.nvim_buf_get_changedtick(buf_now) ~= tick
    return win_now == win and buf_now == buf and mode_now == mode and not is_typing
  end
end

return M
