--- Verbs for the agent's changes in files. See table.lua for the other verbs.
local calls = require('sanderling.verbs.calls')
local lazy = require('sanderling.ui.lazy')

local difference = lazy('sanderling.review.difference')
local review = lazy('sanderling.review.commands')

local always = calls.always

local SCOPES = { 'hunk', 'file', 'turn', 'all' }

---@param direction -1|1
local function going(direction)
  return function()
    review.go(direction)
  end
end

---@type sanderling.verbs.Verb[]
return {
  {
    name = 'keep',
    desc = "accept the agent's changes: here, in the file, in the turn, or all",
    forms = 'ex',
    args = '? scope',
    words = always(SCOPES),
    is_word = true,
    range = true,
    run = function(call)
      review.keep(call.args, call.range)
    end,
  },
  {
    name = 'reject',
    desc = "reject the agent's changes, with a reason for the model",
    forms = 'ex',
    args = '* scope and reason',
    words = always(SCOPES),
    range = true,
    run = function(call)
      review.reject(call.args, call.range)
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
    desc = "show the agent's changes in the turn or the session",
    forms = 'ex',
    args = '? scope',
    words = always({ 'turn', 'session' }),
    is_word = true,
    bang = 'in diff mode',
    run = function(call)
      difference.show(call.args, call.bang or false)
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
    name = 'keep_all',
    desc = 'accept all changes',
    plug = 'n',
    run = function()
      review.keep('all')
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
