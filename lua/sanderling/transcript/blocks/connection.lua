--- Connections to sessions that live elsewhere, below the transcript's text.
local blocks = require('sanderling.transcript.blocks')
local words = require('sanderling.ui.words')

--- Say below the text why a session that lives elsewhere cannot be had just now.
---@type sanderling.transcript.blocks.Draw
local function connection_changed(self, event)
  if event.state == 'waiting' then
    local text = ('%s is not connected: %s'):format(event.name, (event.why or ''):gsub('%.$', ''))
    local lines = self.footer:wrapped(words.plain(text .. '.'), 'AgentWarning')
    local remedy = self.footer:wrapped('It is tried again. :AgentRetry tries now.', 'AgentRemedy')
    self.footer:set('connection', vim.list_extend(lines, remedy))
  elseif event.state ~= 'connecting' then
    self.footer:set('connection', nil)
  end
end

blocks.register({ draw = { connection_changed = connection_changed } })
