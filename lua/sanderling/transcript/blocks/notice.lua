--- Notices and errors in the transcript, of the host and of this side.
local M = {}

local blocks = require('sanderling.transcript.blocks')

---@type table<string, sanderling.transcript.blocks.Draw>
M.draw = {}

function M.draw.notice(self, event)
  self:end_block()
  self:append_block(event.text, event.level == 'warning' and 'AgentWarning' or 'AgentNotice')
end

function M.draw.error_occurred(self, event)
  self:end_countdown()
  self:end_block()
  self:append_block(event.message, 'AgentError')
  if event.remedy and event.remedy ~= '' then
    local row = self.last + 1
    self:append('\n' .. event.remedy)
    self:paint(row, self.last, 'AgentRemedy')
  end
end

M.draw.local_refused = M.draw.error_occurred
M.draw.local_notice = M.draw.notice

blocks.register({ draw = M.draw, beside = { 'local_notice' } })

return M
