--- Findings of a review: places that the answer to `/review` names go into the quickfix list when it ends,
--- and become review comments.
local M = {}

local bus = require('sanderling.host.bus')
local comments = require('sanderling.comments')
local files = require('sanderling.access.files')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local MAX_FINDINGS = 200
local TYPES = { critical = 'E', major = 'E', minor = 'I' }

--- Return the first place that a line names, and its columns: `path:12`, `path:12-20`.
---@param line string
---@param project string
---@return { path: string, lnum: integer, end_lnum?: integer, from: integer, to: integer }?
local function place_in(line, project)
  for from, word, to in line:gmatch('()([^%s`%*%(%)%[%]"\',]+:%d[%d%-:]*)()') do
    local name, lnum, rest = word:match('^(.-):(%d+)(.*)$')
    local path = name and files.find(name, project)
    if path and not files.is_read_by_plugin(path) then
      local end_lnum = tonumber(rest:match('^%-(%d+)'))
      return { path = path, lnum = tonumber(lnum), end_lnum = end_lnum, from = from, to = to }
    end
  end
end

--- Return the text of a finding without its place and Markdown.
---@param line string
---@param place { from: integer, to: integer }
---@return string
local function text_of(line, place)
  local text = line:sub(1, place.from - 1) .. line:sub(place.to)
  text = text:gsub('^%s*[%-%*%d%.%)#]+%s+', ''):gsub('[`*]', ''):gsub('%s+', ' ')
  text = text:gsub('[%(%[]%s*[%)%]]', ''):gsub('^[%s:,%-]+', '')
  for word in pairs(TYPES) do
    text = text:gsub('^' .. word .. '[%s:,%-]+', word .. ': ')
  end
  return words.plain(words.trimmed(text))
end

--- Return the findings in the lines of an answer as quickfix entries.
---@param lines string[]
---@param project string
---@return vim.quickfix.entry[]
function M.parse(lines, project)
  local items, seen, is_code = {}, {}, false
  for _, line in ipairs(lines) do
    is_code = is_code ~= (line:find('^%s*```') ~= nil)
    local place = not is_code and #items < MAX_FINDINGS and place_in(line, project) or nil
    local key = place and place.path .. ':' .. place.lnum
    if place and not seen[key] then
      seen[key] = true
      local severity = line:lower():match('%f[%a](critical)%f[%A]')
        or line:lower():match('%f[%a](major)%f[%A]')
        or line:lower():match('%f[%a](minor)%f[%A]')
      items[#items + 1] = {
        filename = place.path,
        lnum = place.lnum,
        end_lnum = place.end_lnum,
        text = text_of(line, place),
        type = TYPES[severity] or 'W',
      }
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
    scratch.quietly(function() -- this creates unloaded buffers for the files
      vim.fn.setqflist({}, ' ', { title = title, items = items })
    end)
    comments.add_findings(session.project, items)
    local text = '%s: :copen lists them, :AgentReview send asks the model to deal with them.'
    message.tell(text:format(words.counted(#items, 'finding')))
  end
end)

return M
