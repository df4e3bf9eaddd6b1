--- Neovim refuses to change text, or to open windows, for as long as something of the user's is in the way. Then it is tried again.
local M = {}

---@param err string
---@return string? what has to come before it can succeed; nil: it fails for another reason
function M.reason(err)
  if err:find('E565:', 1, true) or err:find('E523:', 1, true) then
    return 'a key for a mapping'
  elseif err:find('E11:', 1, true) then
    return 'the end of the command-line window'
  end
end

return M
