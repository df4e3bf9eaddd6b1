--- Scrolling in the current window.
local M = {}

--- Have the line of the cursor be the last that is seen.
function M.put_last()
  -- From that line on: where the window begins within it, `zb` alone would go back to its beginning, and take the cursor along.
  vim.fn.winrestview({ topline = vim.fn.line('.'), skipcol = 0 })
  vim.cmd('normal! zb')
end

--- Show the end of the text.
function M.to_end()
  vim.cmd('normal! G$')
  M.put_last()
end

return M
