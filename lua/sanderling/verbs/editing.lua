--- Verbs for code in its own buffer. See table.lua for the other verbs.
local lazy = require('sanderling.ui.lazy')

local commit = lazy('sanderling.inline.commit')
local questions = lazy('sanderling.inline.questions')
local operator = lazy('sanderling.inline.operator')
local templates = lazy('sanderling.inline.templates')

--- Start an operator that applies `template` to the lines of its motion.
---@param template 'explain'|'test'
local function operating(template)
  return function()
    questions.operate(function(range)
      templates[template]('', range)
    end)
  end
end

---@type sanderling.verbs.Verb[]
return {
  {
    name = 'ask',
    desc = 'ask a question, about the selected lines if any',
    forms = 'ex',
    has_command = true,
    plug = 'nxs',
    args = '* question',
    range = true,
    run = function(call)
      questions.ask(call.args, call.range)
    end,
    operator = function()
      questions.operate(function(range)
        questions.ask('', range)
      end)
    end,
  },
  {
    name = 'explain',
    desc = 'explain lines',
    forms = 'ex',
    plug = 'nxs',
    args = '* what',
    range = true,
    run = function(call)
      templates.explain(call.args, call.range)
    end,
    operator = operating('explain'),
  },
  {
    name = 'fix',
    desc = 'fix the diagnostics here',
    forms = 'ex',
    has_command = true,
    plug = 'n',
    args = '* how',
    bang = 'all in the buffer',
    range = true,
    run = function(call)
      templates.fix(call.args, call.range, call.bang or false)
    end,
  },
  {
    name = 'test',
    desc = 'write tests for the code here',
    forms = 'ex',
    plug = 'nxs',
    args = '* what',
    range = true,
    run = function(call)
      templates.test(call.args, call.range)
    end,
    operator = operating('test'),
  },
  {
    name = 'commit',
    desc = 'write a commit message for the staged changes',
    forms = 'ex',
    args = '* how',
    run = function(call)
      commit.write(call.args)
    end,
  },
  {
    name = 'edit',
    desc = 'rewrite lines in place; on a pending edit, revise it',
    forms = 'ex',
    has_command = true,
    plug = 'nx',
    args = '* instruction',
    range = true,
    run = function(call)
      operator.edit(call.args, call.range)
    end,
    operator = function()
      operator.start()
    end,
  },
}
