--- Verbs for places: lists of them, and work on each. `page` names their help file. See table.lua for the other verbs.
local lazy = require('sanderling.ui.lazy')

local each = lazy('sanderling.inline.each')
local finding = lazy('sanderling.inline.finding')
local places = lazy('sanderling.chat.places')

local PAGE = 'sanderling-places'

---@type sanderling.verbs.Verb[]
return {
  {
    name = 'places',
    desc = 'list the places that an answer, a result or the selected lines name',
    forms = 'ex',
    has_command = true,
    page = PAGE,
    range = true,
    run = function(call)
      places.command(call.range)
    end,
  },
  {
    name = 'find',
    desc = 'have the model find places, and list them',
    forms = 'ex',
    has_command = true,
    page = PAGE,
    args = '* what',
    bang = 'stop the search',
    run = function(call)
      finding.find(call.args, call.bang or false)
    end,
  },
  {
    name = 'each',
    desc = 'rewrite each place of the quickfix list or the range',
    forms = 'ex',
    has_command = true,
    page = PAGE,
    args = '* instruction',
    bang = 'the files of the argument list',
    range = true,
    run = function(call)
      each.run(call.args, call.range, call.bang or false)
    end,
  },
}
