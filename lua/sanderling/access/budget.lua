--- A limit for work whose amount depends on other people's text. It counts CPU time, so a busy machine does not change
--- the result.
local M = {}

--- CPU time that Neovim has used, in seconds.
M.clock = os.clock

--- Return a function that says whether `ms` have passed since.
---@param ms number
---@return fun(): boolean
function M.new(ms)
  local ends = M.clock() + ms / 1000
  return function()
    return M.clock() > ends
  end
end

return M
