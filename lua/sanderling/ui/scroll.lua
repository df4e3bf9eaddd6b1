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

---@param win integer
---@return boolean rows below its last line are empty
function M.has_room_below(win)
  -- In a window of one column and no text, Neovim 0.12 gives a line behind the last one.
  local top = math.min(vim.fn.line('w0', win), vim.fn.line('$', win)) - 1
  local height = vim.fn.getwininfo(win)[1].height
  return vim.api.nvim_win_text_height(win, { start_row = top }).all < height
end

return M
