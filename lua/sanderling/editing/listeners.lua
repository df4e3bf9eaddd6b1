--- Listeners: functions of this plugin, and the person's autocommands, are told which lines an edit of the agent's has changed.
local M = {}

local bus = require('sanderling.host.bus')
local log = require('sanderling.host.log')
local reviews = require('sanderling.editing.reviews')

---@class (exact) sanderling.editing.ChangedLines
---@field first_line integer as the text is now, from 1
---@field last_line integer one less than the first, where lines have only gone
---@field old? string[] what stood there before; nil where no buffer held it

---@class (exact) sanderling.editing.Changed
---@field path string absolute
---@field buf? integer nil: no buffer is known that holds the file
---@field tool_use_id string
---@field hunks sanderling.editing.ChangedLines[] in their order

-- The beginning of the ids of what the person takes back: nothing of that is to be reviewed. (tools/restoring.py)
local RESTORING = 'restoring:'

---@type fun(changed: sanderling.editing.Changed)[]
local listeners = {}

--- Call `fn` each time an edit of the agent's has changed lines, before anything else can change them again.
---@param fn fun(changed: sanderling.editing.Changed)
function M.on_change(fn)
  listeners[#listeners + 1] = fn
end

---@type table<string, string> the tool uses whose changes the user has seen before, with their sessions
local allowed = {}

for _, type in ipairs({ 'turn_ended', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id)
    for id, of in pairs(allowed) do
      allowed[id] = of ~= session_id and of or nil
    end
  end)
end

--- The person has seen what this tool use would change, and allowed it: nothing of it is to be reviewed.
---@param tool_use_id string
---@param session_id string
function M.allow(tool_use_id, session_id)
  allowed[tool_use_id] = session_id
end

---@param tool_use_id string
---@return boolean
function M.is_allowed(tool_use_id)
  return allowed[tool_use_id] ~= nil
end

---@param tool_use_id string
---@return boolean
function M.is_restoring(tool_use_id)
  return vim.startswith(tool_use_id, RESTORING)
end

--- Change a buffer for a tool use, which `fn` does.
---@param buf integer
---@param tool_use_id string
---@param fn fun()
function M.changing(buf, tool_use_id, fn)
  if M.is_restoring(tool_use_id) then
    reviews.now.restoring(buf, fn)
  elseif allowed[tool_use_id] then
    fn()
  else
    reviews.loaded().changing(buf, tool_use_id, fn)
  end
end

---@param changed sanderling.editing.Changed
local function announce(changed)
  bus.announce('AgentFileChanged', {
    path = changed.path,
    buf = changed.buf,
    tool_use_id = changed.tool_use_id,
    first_line = changed.hunks[1].first_line,
    last_line = changed.hunks[#changed.hunks].last_line,
  })
end

---@class (exact) sanderling.editing.Part
---@field row integer in the text before
---@field old_count integer how many lines have gone
---@field new_count integer how many have come
---@field old? string[] those that have gone

--- An edit of the agent's has changed lines of a file.
---@param path string absolute
---@param buf? integer
---@param tool_use_id string
---@param parts sanderling.editing.Part[] in their order
function M.tell(path, buf, tool_use_id, parts)
  if #parts == 0 then
    return
  end
  reviews.loaded() -- it is among the listeners
  local hunks, shift = {}, 0
  for i, part in ipairs(parts) do
    local first = part.row + shift + 1
    hunks[i] = { first_line = first, last_line = first + part.new_count - 1, old = part.old }
    shift = shift + part.new_count - part.old_count
  end
  local changed = { path = path, buf = buf, tool_use_id = tool_use_id, hunks = hunks }
  for _, fn in ipairs(listeners) do
    log.guarded(fn, changed)
  end
  vim.schedule(function() -- Python waits for its answer first
    announce(changed)
  end)
end

return M
