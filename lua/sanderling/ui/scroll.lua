--- Scrolling in the current window.
local M = {}

function M.put_last()
  -- Begin the window at that line: if it began within it, `zb` alone would scroll to the line's beginning and move the
  -- cursor.
  vim.fn.winrestview({ topline = vim.fn.line('.'), skipcol = 0 })
  vim.cmd('normal! zb')
end

function M.to_end()
  vim.cmd('normal! G$')
  M.put_last()
end

---@type table<integer, true> by window
local covered = {}

--- Note whether a float covers the end of `win`.
---@param win integer
---@param is_covered boolean
function M.cover(win, is_covered)
  covered[win] = is_covered or nil
end

--- Forget what was covered.
---@return integer[] the windows
function M.uncover()
  local wins = vim.tbl_keys(covered)
  covered = {}
  return wins
end

--- Rows below the text of a window whose end is covered do not count: its lines are scrolled up whole, and are seldom as high as the rest.
---@param win integer
---@return boolean rows below its last line are empty
function M.has_room_below(win)
  if covered[win] then
    return false
  end
  -- In a window of one column and no text, Neovim 0.12 gives a line behind the last one.
  local top = math.min(vim.fn.line('w0', win), vim.fn.line('$', win)) - 1
  local height = vim.fn.getwininfo(win)[1].height
  return vim.api.nvim_win_text_height(win, { start_row = top }).all < height
end

return M
