--- Follow mode: the code window shows the file that the agent reads or changes. The cursor stays in its window. The
--- current window is used only with `follow = 'jump'`, and only in normal mode.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local config = require('sanderling.config')
local files = require('sanderling.access.files')
local listeners = require('sanderling.editing.listeners')
local live = require('sanderling.session.live')

local TOOLS = { read = true, edit = true, write = true }

---@param win integer
---@return boolean
local function is_free(win)
  return win ~= api.nvim_get_current_win()
    or config.options.follow == 'jump' and api.nvim_get_mode().mode == 'n'
end

---@param place sanderling.access.files.Place
local function show(place)
  local win = files.code_window(place.path)
  if win and is_free(win) then
    files.show_in(win, place)
  end
end

bus.subscribe('tool_started', function(session_id, event)
  local session = live.find(session_id)
  if config.options.follow == 'off' or not TOOLS[event.tool] or session ~= live.current() then
    return
  end
  local place = files.place_in(event.title, 0, session.project)
  if place then
    show(place)
  end
end)

listeners.on_change(function(changed)
  if config.options.follow == 'off' then
    return
  end
  vim.schedule(function() -- Python is waiting for the answer, so send that first
    local real = vim.uv.fs_realpath(changed.path)
    if real then
      show({ path = real, lnum = changed.hunks[1].first_line })
    end
  end)
end)

return M
