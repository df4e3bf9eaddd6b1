--- A heirline component: add `require('sanderling.heirline')` to your statusline. It is hidden until there is a chat.

---@return string? text
---@return string? hl
local function summary()
  local status = package.loaded['sanderling.status']
  if status then
    return status.summary()
  end
end

return {
  condition = function()
    return (summary()) ~= nil
  end,
  provider = function()
    local text = summary() or ''
    return (text:gsub('%%', '%%%%'))
  end,
  hl = function()
    return select(2, summary())
  end,
  update = {
    'User',
    pattern = 'AgentStatusChanged',
    callback = vim.schedule_wrap(function()
      vim.cmd.redrawstatus()
    end),
  },
}
