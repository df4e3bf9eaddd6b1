--- A person's attention: do they still wait for what they have asked for? What comes later must not take keys that are meant for
--- something else, nor open a window over it.
local M = {}

--- A key that comes earlier than this, after what it would answer has appeared, was meant for something else.
M.GRACE_NS = 300 * 1e6

local api = vim.api

---@return integer win
---@return integer buf
---@return string mode
local function place()
  return api.nvim_get_current_win(), api.nvim_get_current_buf(), api.nvim_get_mode().mode
end

--- Remember where the person is and what they have typed.
---@return fun(): boolean is_here they have not gone on to something else
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
