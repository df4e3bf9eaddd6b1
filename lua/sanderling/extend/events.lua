--- Callbacks of plugins for the protocol's events.
local M = {}

local lazy = require('sanderling.ui.lazy')

local guess = lazy('sanderling.config.guess')
local registry = require('sanderling.extend.registry')

---@class (exact) sanderling.extend.events.Callback: sanderling.extend.registry.Owner
---@field fn fun(event: any, session: sanderling.Session)
---@field session_id? string nil: any session

---@type table<string, sanderling.extend.events.Callback[]> by event type
local callbacks = {}

---@param type any
local function check_type(type)
  local known = require('sanderling.extend.event_types')
  if _G.type(type) ~= 'string' then
    local text = 'the first argument must be the name of an event, not a %s.'
    registry.refuse('on', text, _G.type(type))
  elseif not known[type] then
    local nearest = guess.nearest(type, known)
    local text = "there is no event '%s'; did you mean '%s'? See :help sanderling-lua-events."
    registry.refuse('on', text, type, nearest)
  end
end

--- Call `fn` at each event of a type, after it was drawn.
---@param type string
---@param fn fun(event: any, session: sanderling.Session)
---@param session_id? string nil: of all sessions
---@return sanderling.Handle
function M.add(type, fn, session_id)
  check_type(type)
  if not vim.is_callable(fn) then
    registry.refuse('on', 'expected a function, got %s.', _G.type(fn))
  end
  local callback =
    { fn = fn, origin = registry.origin(), is_frequent = true, session_id = session_id }
  callbacks[type] = vim.list_extend(vim.list_slice(callbacks[type] or {}), { callback })
  return registry.handle(function()
    callbacks[type] = vim.tbl_filter(function(each)
      return each ~= callback
    end, callbacks[type])
  end)
end

--- Call the callbacks for an event. Each gets a copy, because the screen keeps parts of the event.
---@param session sanderling.Session
---@param event table
function M.tell(session, event)
  for _, callback in ipairs(callbacks[event.type] or {}) do
    if (callback.session_id or session.id) == session.id then
      local subject = ("on('%s')"):format(event.type)
      registry.call(callback, subject, callback.fn, vim.deepcopy(event), session)
    end
  end
end

--- Remove the callbacks for one session, which is closed.
---@param session_id string
function M.forget(session_id)
  for type, list in pairs(callbacks) do
    callbacks[type] = vim.tbl_filter(function(each)
      return each.session_id ~= session_id
    end, list)
  end
end

return M
