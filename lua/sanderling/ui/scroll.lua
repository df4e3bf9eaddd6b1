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

---@type table<integer, integer> by window
local covered = {}

--- Note how many of the last rows of `win` a float covers.
---@param win integer
---@param rows integer
function M.cover(win, rows)
  covered[win] = rows > 0 and rows or nil
end

--- Forget what was covered.
---@return integer[] the windows
function M.uncover()
  local wins = vim.tbl_keys(covered)
  covered = {}
  return wins
end

---@param win integer
---@return boolean rows below its last line are empty and not covered
function M.has_room_below(win)
  -- In a window of one column and no text, Neovim 0.12 gives a line behind the last one.
  local top = math.min(vim.fn.line('w0', win), vim.fn.line('$', win)) - 1
  local height = vim.fn.getwininfo(win)[1].height - (covered[win] or 0)
  return vim.api.nvim_win_text_height(win, { start_row = top }).all < height
end

return M
