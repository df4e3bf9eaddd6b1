--- Notices and errors in the transcript, of the host and of this side.
local M = {}

local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local ns = require('sanderling.transcript.writer').NS

---@type table<string, sanderling.transcript.blocks.Draw>
M.draw = {}

function M.draw.notice(self, event)
  self:end_block()
  local hl = event.level == 'warning' and 'AgentWarning' or 'AgentNotice'
  local row = self:append_block(event.text, hl)
  if event.topic then
    self.notices[event.topic] = api.nvim_buf_set_extmark(self.buf, ns, row, 0, {})
  end
end

--- The last notice on a topic, one line, holds no more.
function M.draw.local_notice_outdated(self, event)
  local mark = self.notices[event.topic]
  local row = mark and api.nvim_buf_get_extmark_by_id(self.buf, ns, mark, {})[1]
  if row then
    self:replace_row(row, event.text)
    self:paint(row, row, 'AgentNotice')
  end
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

blocks.register({
  draw = M.draw,
  beside = { 'local_notice', 'local_notice_outdated' },
  new = function()
    return { notices = {} }
  end,
})

return M
