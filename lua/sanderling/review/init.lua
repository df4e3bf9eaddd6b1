--- Questions to the person: may this be done? One float shows them, one at a time, and never takes a key that was not meant for
--- it: it is not entered by itself, and an answer counts only when its question has been on the screen for a moment.
---
--- Where it is belongs to no window of the user's: it comes back after `:only`, moves along to another tab page, and gives way
--- to the cursor. What can go wrong while it opens (text is locked, the command-line window) is tried again.
local M = {}

local answers = require('sanderling.review.answers')
local config = require('sanderling.config')
local float = require('sanderling.review.float')
local host = require('sanderling.host')
local keys = require('sanderling.review.keys')
local queue = require('sanderling.review.queue')

--- Drop the questions that `is_gone` names.
---@param is_gone fun(q: sanderling.review.Question): boolean
local function drop(is_gone)
  local before = queue.question()
  queue.list = vim.tbl_filter(function(q)
    return not is_gone(q)
  end, queue.list)
  for i, q in ipairs(queue.list) do
    queue.index = q == before and i or queue.index
  end
  float.update()
end

---@param session_id string
---@param event sanderling.ApprovalRequested
local function ask(session_id, event)
  table.insert(queue.list, { session_id = session_id, event = event })
  if float.is_left then
    float.is_left, queue.index = false, #queue.list
  end
  float.update()
  if config.options.approval.bell then
    -- To the terminal itself: Neovim's own bell can be rung by no function, and is off unless 'belloff' is changed.
    pcall(vim.fn.chansend, vim.v.stderr, '\a')
  end
  host.announce('AgentApprovalRequested', {
    session_id = session_id,
    id = event.id,
    tool = event.tool,
    title = event.title,
    count = #queue.list,
  })
end

host.subscribe(function(session_id, events)
  for _, event in ipairs(events) do
    if event.type == 'approval_requested' then
      ask(session_id, event)
    elseif event.type == 'approval_settled' then
      drop(function(q)
        return q.session_id == session_id and q.event.id == event.id
      end)
    elseif event.type == 'local_failed' or event.type == 'local_closed' then
      drop(function(q)
        return q.session_id == session_id
      end)
    end
  end
  float.keep_ends_in_sight()
end)

float.on_open = keys.set
M.CHOICES, M.approve, M.deny, M.focus =
  answers.CHOICES, answers.approve, answers.deny, answers.focus

return M
