--- Verbs for the agent's changes in files. See table.lua for the other verbs.
local calls = require('sanderling.verbs.calls')
local lazy = require('sanderling.ui.lazy')
local message = require('sanderling.ui.message')

local comments = lazy('sanderling.comments')
local below = lazy('sanderling.inline.below')
local blame = lazy('sanderling.screens.blame')
local difference = lazy('sanderling.review.difference')
local review = lazy('sanderling.review.commands')
local walk = lazy('sanderling.review.walk')
local edits = lazy('sanderling.inline.edits')

local always = calls.always

local SCOPES = { 'hunk', 'file', 'turn', 'all' }

---@param direction -1|1
local function going(direction)
  return function()
    review.go(direction)
  end
end

---@param direction -1|1
local function commenting(direction)
  return function()
    comments.go(direction)
  end
end

---@param direction -1|1
local function walking(direction)
  return function()
    walk.go(direction * vim.v.count1)
  end
end

--- Accept or reject what is shown below lines: inline edits and, to reject, inline answers. Without `!` that is what is at
--- the cursor; without a change of the agent's there, also the only one in the buffer.
---@param call sanderling.verbs.Call
---@param decision 'accept'|'reject'
---@return boolean is_done false: the command is about the agent's changes
local function decide_below(call, decision)
  if call.args ~= '' or call.range then
    if call.bang then
      error('With ! it takes no scope and no range.', 0)
    end
    return false
  end
  local has_answers = decision == 'reject' and package.loaded['sanderling.inline.below'] ~= nil
  local at_cursor = review.is_at_cursor() and { 'cursor' } or { 'cursor', 'only' }
  for _, which in ipairs(call.bang and { 'all' } or at_cursor) do
    local is_answer = has_answers and below.reject(which)
    local is_edit = edits[decision](which)
    if is_answer or is_edit then
      return true
    end
  end
  if call.bang then
    message.tell('No edit in this buffer.', vim.log.levels.WARN)
  end
  return call.bang or false
end

---@type sanderling.verbs.Verb[]
return {
  {
    name = 'accept',
    desc = 'accept an edit or changes: here, in the file, in the turn, or all',
    forms = 'ex',
    has_command = true,
    args = '? scope',
    words = always(SCOPES),
    is_word = true,
    bang = 'all edits',
    range = true,
    run = function(call)
      if not decide_below(call, 'accept') then
        review.accept(call.args, call.range)
      end
    end,
  },
  {
    name = 'reject',
    desc = 'reject an edit, an answer or changes, with a reason for the model',
    forms = 'ex',
    has_command = true,
    args = '* scope and reason',
    words = always(SCOPES),
    bang = 'all edits and answers',
    range = true,
    run = function(call)
      if not decide_below(call, 'reject') then
        review.reject(call.args, call.range)
      end
    end,
  },
  {
    name = 'reviews',
    desc = "list the agent's unreviewed changes",
    forms = 'ex',
    run = function()
      review.show_all()
    end,
  },
  {
    name = 'diff',
    desc = "show the agent's changes in the turn or the session, or walk through them",
    forms = 'ex',
    has_command = true,
    args = '? scope',
    words = always({ 'turn', 'session', 'walk' }),
    is_word = true,
    bang = 'in diff mode',
    run = function(call)
      difference.show(call.args, call.bang or false)
    end,
  },
  {
    name = 'comment',
    desc = 'comment on lines, for :AgentReview send; edit the comment there',
    forms = 'ex',
    has_command = true,
    args = '* text',
    bang = 'remove it',
    range = true,
    run = function(call)
      if call.bang then
        comments.remove(call.range)
      else
        comments.comment(call.args, call.range)
      end
    end,
  },
  {
    name = 'next_comment',
    desc = 'next open comment',
    plug = 'n',
    run = commenting(1),
  },
  {
    name = 'previous_comment',
    desc = 'previous open comment',
    plug = 'n',
    run = commenting(-1),
  },
  {
    name = 'next_step',
    desc = 'next change of the walk',
    plug = 'n',
    run = walking(1),
  },
  {
    name = 'previous_step',
    desc = 'previous change of the walk',
    plug = 'n',
    run = walking(-1),
  },
  {
    name = 'blame',
    desc = 'show which turns wrote the lines of the buffer',
    forms = 'ex',
    has_command = true,
    bang = 'of the line under the cursor, with its prompt',
    run = function(call)
      if call.bang then
        blame.show()
      else
        blame.toggle()
      end
    end,
  },
  { name = 'next_hunk', desc = 'next change; takes a count', plug = 'n', run = going(1) },
  {
    name = 'previous_hunk',
    desc = 'previous change; takes a count',
    plug = 'n',
    run = going(-1),
  },
  {
    name = 'accept_all',
    desc = 'accept all changes',
    plug = 'n',
    run = function()
      review.accept('all')
    end,
  },
  {
    name = 'reject_all',
    desc = 'reject all changes',
    plug = 'n',
    run = function()
      review.reject('all')
    end,
  },
}
