--- The verbs for code in its own buffer, as table.lua has the others.
local lazy = require('sanderling.ui.lazy')

local asking = lazy('sanderling.asking')
local below = lazy('sanderling.asking.below')
local operator = lazy('sanderling.rewrite.operator')
local rewrite = lazy('sanderling.rewrite')
local templates = lazy('sanderling.asking.templates')

--- Begin an operator that does what `template` does, with the lines that it is given.
---@param template 'explain'|'test'
local function operating(template)
  return function()
    asking.operate(function(range)
      templates[template]('', range)
    end)
  end
end

---@type sanderling.verbs.Verb[]
return {
  {
    name = 'ask',
    desc = 'ask, about the selected lines if there are any',
    forms = 'ex',
    plug = 'nxs',
    args = '* question',
    range = true,
    run = function(call)
      asking.ask(call.args, call.range)
    end,
    operator = function()
      asking.operate(function(range)
        asking.ask('', range)
      end)
    end,
  },
  {
    name = 'explain',
    desc = 'have lines explained',
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
    desc = 'have what is reported here fixed',
    forms = 'ex',
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
    desc = 'have tests written for what is here',
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
    desc = 'have the message of a commit written, from what is staged',
    forms = 'ex',
    args = '* how',
    run = function(call)
      templates.commit(call.args)
    end,
  },
  {
    name = 'edit',
    desc = 'have lines rewritten in place; where an edit waits, change it',
    forms = 'ex',
    plug = 'nx',
    args = '+ instruction',
    range = true,
    run = function(call)
      operator.edit(call.args, call.range)
    end,
    operator = function()
      operator.start()
    end,
  },
  {
    name = 'accept',
    desc = 'put in what an edit has written',
    forms = 'ex',
    bang = 'of all edits in the buffer',
    run = function(call)
      rewrite.accept(call.bang)
    end,
  },
  {
    name = 'discard',
    desc = 'take an edit or an answer away, or stop it',
    forms = 'ex',
    bang = 'all in the buffer',
    run = function(call)
      local has_answers = package.loaded['sanderling.asking.below'] ~= nil
      local is_done = has_answers and below.discard(call.bang)
      if not is_done or rewrite.here() then
        rewrite.discard(call.bang)
      end
    end,
  },
}
