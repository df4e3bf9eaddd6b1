--- What the host has to know of Neovim: the tools and callbacks in Lua, and whether a debug session runs. This module
--- needs no other, because the user's configuration declares tools and callbacks while Neovim starts.
local M = {}

---@class (exact) sanderling.host.declared.Tool
---@field name string
---@field desc string
---@field owner string the plugin that declared it
---@field timeout_s number
---@field schema? table
---@field effect string "" if it does not say

---@class (exact) sanderling.host.declared.Callback
---@field point string
---@field timeout_s number

---@type sanderling.host.declared.Tool[]
local tools = {}
---@type sanderling.host.declared.Callback[]
local callbacks = {}
---@type boolean
local is_debugging = false
---@type fun()?
local on_change

---@param fn fun() called after each change
function M.subscribe(fn)
  on_change = fn
end

---@return boolean
function M.has_any()
  return #tools + #callbacks > 0 or is_debugging
end

---@return { tools: sanderling.host.declared.Tool[], callbacks: sanderling.host.declared.Callback[], is_debugging: boolean }
function M.all()
  return { tools = tools, callbacks = callbacks, is_debugging = is_debugging }
end

local function changed()
  if on_change then
    on_change()
  end
end

---@param value boolean a debug session runs
function M.set_debugging(value)
  if value ~= is_debugging then
    is_debugging = value
    changed()
  end
end

---@param list table[]
---@param declaration table
---@return fun() remove
local function add(list, declaration)
  list[#list + 1] = declaration
  changed()
  return function()
    for index, each in ipairs(list) do
      if each == declaration then
        table.remove(list, index)
        return changed()
      end
    end
  end
end

---@param declaration sanderling.host.declared.Tool
---@return fun() remove
function M.add_tool(declaration)
  return add(tools, declaration)
end

---@param declaration sanderling.host.declared.Callback
---@return fun() remove
function M.add_callback(declaration)
  return add(callbacks, declaration)
end

return M
