--- A share of the editor's time, for work that the text of others decides on. It is the time of the processor, so a busy machine
--- changes nothing about what is done.
local M = {}

--- The seconds that Neovim has computed.
M.clock = os.clock

--- A function that says whether `ms` are spent from now on.
---@param ms number
---@return fun(): boolean
function M.new(ms)
  local ends = M.clock() + ms / 1000
  return function()
    return M.clock() > ends
  end
end

return M
