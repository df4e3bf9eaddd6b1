--- Findings of a review: places that the answer to `/review` names go into the quickfix list when it ends,
--- and become review comments.
local M = {}

local bus = require('sanderling.host.bus')
local entries = require('sanderling.access.entries')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local quickfix = require('sanderling.ui.quickfix')
local words = require('sanderling.ui.words')

local comments = lazy('sanderling.comments')

local TYPES = { critical = 'E', major = 'E', minor = 'I' }

--- Return the findings in the lines of an answer as quickfix entries.
---@param lines string[]
---@param project string
---@return vim.quickfix.entry[]
function M.parse(lines, project)
  local items = entries.of(lines, project, { only_first = true, outside_fences = true })
  for _, item in ipairs(items) do
    local text = item.text:lower()
    item.type = 'W'
    for _, word in ipairs({ 'minor', 'major', 'critical' }) do
      if text:find('%f[%a]' .. word .. '%f[%A]') then
        item.type = TYPES[word]
      end
      item.text = item.text:gsub('^' .. word .. '[%s:,%-]+', word .. ': ')
    end
  end
  return items
end

---@type table<string, string> the prompt of the current review, by session
local reviews = {}

bus.subscribe('turn_started', function(session_id, event)
  local is_review = event.prompt.text:find('^/review%f[%s%z]') ~= nil
  reviews[session_id] = is_review and event.prompt.text or nil
end)

bus.subscribe('turn_ended', function(session_id, event)
  local prompt, session = reviews[session_id], live.find(session_id)
  reviews[session_id] = nil
  if not prompt or not session or event.stop_reason ~= 'end_turn' then
    return
  end
  local items = M.parse(session.transcript:answer_lines(), session.project)
  if #items > 0 then
    local title = 'Agent: ' .. words.trimmed(words.first_line(prompt))
    quickfix.set(title, items)
    comments.add_findings(session.project, items)
    local text = '%s: :copen lists them, :AgentReview send asks the model to deal with them.'
    message.tell(text:format(words.counted(#items, 'finding')))
  end
end)

return M
