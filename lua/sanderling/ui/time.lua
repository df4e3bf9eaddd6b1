--- Measuring time.
local M = {}

--- CPU time that Neovim has used, in seconds.
M.clock = os.clock

--- Return a monotonic time in milliseconds.
---@return number
function M.now_ms()
  return vim.uv.hrtime() / 1e6
end

--- Return a function that says whether Neovim has used `ms` of CPU time since: a limit for work whose amount depends on
--- other people's text, and a busy machine does not change the result.
---@param ms number
---@return fun(): boolean
function M.budget(ms)
  local ends = M.clock() + ms / 1000
  return function()
    return M.clock() > ends
  end
end

return M
