--- Questions to the person: may this be done? One float shows them, one at a time, and never takes a key that was not meant for
--- it: it is not entered by itself, and an answer counts only when its question has been on the screen for a moment.
---
--- The float's place belongs to no window of the user's: it comes back after `:only`, moves along to another tab page, and gives way
--- to the cursor. What can go wrong while it opens (text is locked, the command-line window) is tried again.
local M = {}

local anywhere = require('sanderling.approval.anywhere')
local answers = require('sanderling.approval.answers')
local bus = require('sanderling.host.bus')
local config = require('sanderling.config')
local float = require('sanderling.approval.float')
local form = require('sanderling.approval.form')
local keys = require('sanderling.approval.keys')
local queue = require('sanderling.approval.queue')

bus.subscribe('approval_requested', function(session_id, event)
  local index = 0
  for i, q in ipairs(queue.list()) do
    index = q.event == event and i or index
  end
  if index == 0 then
    return -- it is answered already
  elseif float.is_left then
    float.is_left = false
    queue.show(index)
  end
  anywhere.update()
  float.update()
  if event.kind == 'form' then
    form.ask_again(queue.list()[index])
  end
  if config.options.approval.bell then
    -- The terminal itself gets it: Neovim's own bell can be rung by no function, and is off unless 'belloff' is changed.
    pcall(vim.fn.chansend, vim.v.stderr, '\a')
  end
  bus.announce('AgentApprovalRequested', {
    session_id = session_id,
    id = event.id,
    tool = event.tool,
    title = event.title,
    count = index,
  })
end)

bus.subscribe('sandbox_changed', float.update) -- the question says how confined it would be

for _, type in ipairs({ 'approval_settled', 'local_answered', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id, event, before)
    anywhere.update()
    float.update()
    for _, q in ipairs(before.questions) do
      if event.id == nil or event.id == q.event.id then
        form.settle(q.event.id)
        bus.announce('AgentApprovalSettled', {
          session_id = session_id,
          id = q.event.id,
          tool = q.event.tool,
          title = q.event.title,
          answer = event.answer,
        })
      end
    end
  end)
end

bus.subscribe('local_drawn', float.keep_ends_in_sight)
float.on_open = keys.set
anywhere.actions = {
  { option = 'answer_focus', word = 'answer', run = answers.focus },
  {
    option = 'answer_once',
    word = 'allow',
    run = function()
      answers.approve('once')
    end,
  },
  {
    option = 'answer_deny',
    word = 'deny',
    run = function()
      answers.deny()
    end,
  },
}
form.on_answer = answers.send
M.choices, M.approve, M.deny, M.focus =
  answers.choices, answers.approve, answers.deny, answers.focus

return M
