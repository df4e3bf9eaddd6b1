--- The state of a connection to a remote session, below the transcript's text.
local blocks = require('sanderling.transcript.blocks')
local words = require('sanderling.ui.words')

--- Show why a remote session is not connected.
---@type sanderling.transcript.blocks.Draw
local function connection_changed(self, event)
  if event.state == 'waiting' then
    local text = ('Cannot connect to %s: %s'):format(event.name, (event.why or ''):gsub('%.$', ''))
    local lines = self.footer:wrapped(words.plain(text .. '.'), 'AgentWarning')
    local remedy = self.footer:wrapped('Retrying. :Agent retry retries now.', 'AgentRemedy')
    self.footer:set('connection', vim.list_extend(lines, remedy))
  elseif event.state ~= 'connecting' then
    self.footer:set('connection', nil)
  end
end

blocks.register({ draw = { connection_changed = connection_changed } })
