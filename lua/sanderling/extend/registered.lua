--- The functions of tools and callbacks in Lua. `extend/calls.lua` calls them.
local M = {}

---@type table<string, { run: function, owner: string }> by name
M.tools = {}

---@class (exact) sanderling.extend.registered.Callback
---@field fn sanderling.extend.Callback
---@field owner string
---@field timeout_ms number
---@field is_async boolean

---@type table<sanderling.extend.Point, sanderling.extend.registered.Callback[]>
M.callbacks = { prompt = {}, tool = {}, compact = {} }

return M
