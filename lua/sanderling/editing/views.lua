--- Views: windows keep showing the same part of a buffer.
local M = {}

local api = vim.api
local hunks = require('sanderling.editing.hunks')

---@class (exact) sanderling.editing.Views
---@field tick integer
---@field lines string[]
---@field by_win table<integer, vim.fn.winsaveview.ret>

---@param buf integer
---@return sanderling.editing.Views
function M.save(buf)
  local by_win = {}
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    by_win[win] = api.nvim_win_call(win, vim.fn.winsaveview)
  end
  return {
    tick = api.nvim_buf_get_changedtick(buf),
    lines = api.nvim_buf_get_lines(buf, 0, -1, true),
    by_win = by_win,
  }
end

--- Return the position of line `lnum` after `parts` have changed.
---@param parts [integer, integer, integer, integer][]
---@param lnum integer
---@return integer
local function follow(parts, lnum)
  local shift = 0
  for _, part in ipairs(parts) do
    local from, count, new_from, new_count = unpack(part)
    if lnum < from then
      break
    elseif lnum < from + count then
      return math.max(1, new_from + math.min(lnum - from, new_count - 1))
    end
    shift = shift + new_count - count
  end
  return lnum + shift
end

--- Make the windows show what they showed before, wherever it has moved.
---@param buf integer
---@param views sanderling.editing.Views
function M.restore(buf, views)
  local is_same = api.nvim_buf_get_changedtick(buf) == views.tick
  local parts = is_same and {}
    or hunks.differences(views.lines, api.nvim_buf_get_lines(buf, 0, -1, true))
  for win, view in pairs(views.by_win) do
    if api.nvim_win_is_valid(win) and api.nvim_win_get_buf(win) == buf then
      view.lnum, view.topline = follow(parts, view.lnum), follow(parts, view.topline)
      api.nvim_win_call(win, function()
        vim.fn.winrestview(view)
      end)
    end
  end
end

return M
