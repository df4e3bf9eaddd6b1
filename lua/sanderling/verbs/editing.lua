--- The verbs for code in its own buffer, as table.lua has the others.
local lazy = require('sanderling.ui.lazy')

local operator = lazy('sanderling.rewrite.operator')
local rewrite = lazy('sanderling.rewrite')

---@type sanderling.verbs.Verb[]
return {
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
    desc = 'take an edit away, or stop it',
    forms = 'ex',
    bang = 'all edits in the buffer',
    run = function(call)
      rewrite.discard(call.bang)
    end,
  },
}
