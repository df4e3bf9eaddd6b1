--- Permission questions. One float shows them, one at a time, without taking keys that were meant for something else: it is never
--- focused automatically, and an answer counts only when its question was on the screen for a moment.
---
--- The float belongs to no window of the user's: it reopens after `:only`, follows into other tab pages, and moves away from the cursor.
--- If it cannot open (text is locked, the command-line window), it is retried.
local M = {}

local anywhere = require('sanderling.approval.anywhere')
local answers = require('sanderling.approval.answers')
local bus = require('sanderling.host.bus')
local choosing = require('sanderling.approval.choosing')
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
    return -- already answered
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
    -- Written to the terminal: no function rings Neovim's own bell, and 'belloff' disables it by default.
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

bus.subscribe('sandbox_changed', float.update) -- the question shows how confined the request is

for _, type in ipairs({ 'approval_settled', 'local_answered', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id, event, before)
    anywhere.update()
    float.update()
    for _, q in ipairs(before.questions) do
      if event.id == nil or event.id == q.event.id then
        form.settle(q.event.id)
        choosing.settle(q.event.id)
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

--- Answer with a key from any window, unless it is held down: each answer is a press of its own.
---@param option string
---@param answer fun()
---@return fun()
local function pressing(option, answer)
  return function()
    if not float.is_held(option) then
      float.is_meant(option)
      answer()
    end
  end
end

bus.subscribe('local_drawn', float.keep_ends_in_sight)
float.register(keys.set)
anywhere.register({
  { option = 'answer_focus', word = 'answer', run = answers.focus },
  { option = 'answer_hunk', word = 'change', run = answers.visit_hunk },
  {
    option = 'answer_once',
    word = 'allow',
    run = pressing('answer_once', function()
      answers.allow('once')
    end),
  },
  {
    option = 'answer_deny',
    word = 'deny',
    run = pressing('answer_deny', function()
      answers.deny()
    end),
  },
  { option = 'answer_reason', word = 'deny, why', run = answers.deny_because },
})
M.choices, M.allow, M.deny, M.focus = answers.choices, answers.allow, answers.deny, answers.focus
M.go_to_hunk = answers.go_to_hunk

return M
