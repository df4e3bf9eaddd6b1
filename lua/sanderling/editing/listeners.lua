--- Listeners for the lines that the agent's edits have changed: functions of this plugin and the user's autocommands.
local M = {}

local bus = require('sanderling.host.bus')
local log = require('sanderling.host.log')
local reviews = require('sanderling.editing.reviews')

---@class (exact) sanderling.editing.ChangedLines
---@field first_line integer in the current text, from 1
---@field last_line integer one less than the first, if lines were only deleted
---@field old? string[] the replaced lines; nil if no buffer contained them

---@class (exact) sanderling.editing.Changed
---@field path string absolute
---@field buf? integer nil: no buffer of the file is known
---@field tool_use_id string
---@field hunks sanderling.editing.ChangedLines[] in their order

-- The prefix of the ids of undo and redo by the user, which need no review. (tools/restoring.py)
local RESTORING = 'restoring:'

---@type fun(changed: sanderling.editing.Changed)[]
local listeners = {}

--- Call `fn` each time an edit by the agent has changed lines, before anything else can change them.
---@param fn fun(changed: sanderling.editing.Changed)
function M.on_change(fn)
  listeners[#listeners + 1] = fn
end

---@type table<string, string> tool uses whose changes the user has accepted, with their sessions
local allowed = {}

for _, type in ipairs({ 'turn_ended', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id)
    for id, of in pairs(allowed) do
      allowed[id] = of ~= session_id and of or nil
    end
  end)
end

--- The user has seen and accepted the changes of this tool use, so they need no review.
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

--- Let `fn` change a buffer for a tool use, and record that for the review.
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
---@field row integer in the old text
---@field old_count integer lines removed
---@field new_count integer lines added
---@field old? string[] the removed lines

--- Notify the listeners that an edit by the agent has changed lines of a file.
---@param path string absolute
---@param buf? integer
---@param tool_use_id string
---@param parts sanderling.editing.Part[] in their order
function M.tell(path, buf, tool_use_id, parts)
  if #parts == 0 then
    return
  end
  reviews.loaded() -- it registers a listener
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
  vim.schedule(function() -- after the answer that Python waits for
    announce(changed)
  end)
end

return M
