--- A component of lualine: `lualine_x = { 'sanderling' }`. Its own option is `colored`; `icon`, `color`, `fmt` and the rest are
--- lualine's.
local Component = require('lualine.component'):extend()

--- The foreground of the state's group, on the section's ground.
---@return { fg: string }?
local function state_color()
  local status = package.loaded['sanderling.status']
  local _, hl = (status and status.summary or function() end)()
  local fg = hl and vim.api.nvim_get_hl(0, { name = hl, link = false }).fg
  return fg and { fg = ('#%06x'):format(fg) } or nil
end

---@param options table
function Component:init(options)
  if options.colored ~= false and options.color == nil then
    options.color = state_color
  end
  Component.super.init(self, options)
end

--- Nothing is loaded, and nothing shown, before there is a chat.
---@return string
function Component.update_status()
  local status = package.loaded['sanderling.status']
  local text = status and status.summary() or ''
  return (text:gsub('%%', '%%%%'))
end

return Component
