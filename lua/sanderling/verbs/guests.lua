--- Verbs for external agents.
local lazy = require('sanderling.ui.lazy')

local agents = lazy('sanderling.screens.agents')

return {
  ---@type sanderling.verbs.Verb
  option = {
    name = 'option',
    desc = "set an external agent's option",
    forms = 'ex slash',
    args = '* option and value',
    complete = agents.complete_option,
    on_session = true,
    run = agents.set_or_choose_option,
  },
}
