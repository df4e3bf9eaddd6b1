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

return M
