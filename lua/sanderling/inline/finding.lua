--- `:AgentFind`: a question that is answered by a list of places. It has a session of its own, which can only read and
--- ends with the answer.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local entries = require('sanderling.access.entries')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local quickfix = require('sanderling.ui.quickfix')
local sessions = require('sanderling.inline.sessions')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local MAX_TITLE = 60 -- characters

--- The running search.
---@class (exact) sanderling.inline.finding.Search
---@field session sanderling.chat.session.Session
---@field title string
---@field win integer where it began
---@field problem? string

---@type sanderling.inline.finding.Search?
local running

---@param search sanderling.inline.finding.Search
local function forget(search)
  if running == search then
    running = nil
  end
  if live.find(search.session.id) == search.session and not search.session.prompt then
    chat.remove(search.session)
  end
end

--- Return the model's last text in the turn: the answer, without remarks between its searches.
---@param session sanderling.chat.session.Session
---@return string[]
local function answer_of(session)
  local piece = session.transcript.pieces[#session.transcript.pieces]
  return piece
      and api.nvim_buf_get_lines(session.transcript_buf, piece.first, piece.last + 1, false)
    or {}
end

---@param search sanderling.inline.finding.Search
---@return boolean the user is where the search began, and not in the middle of something
local function is_waiting(search)
  return api.nvim_get_current_win() == search.win and api.nvim_get_mode().mode == 'n'
end

---@param search sanderling.inline.finding.Search
---@param stop_reason string
local function finish(search, stop_reason)
  local items = entries.of(answer_of(search.session), search.session.project)
  forget(search)
  local is_whole = stop_reason == 'end_turn'
  local problem = search.problem
    or not is_whole and ('the search ended early (%s)'):format(stop_reason)
  if #items > 0 then
    local is_open = is_waiting(search)
    local put = is_open and quickfix.show or quickfix.set
    put('AgentFind: ' .. search.title, items)
    local found = words.counted(#items, 'place') .. (is_open and '.' or ': :copen lists them.')
    message.tell(problem and ('%s But %s'):format(found, problem) or found)
  elseif stop_reason == 'cancelled' then
    message.tell('Stopped.')
  elseif problem then
    message.tell('Nothing found: ' .. problem, vim.log.levels.ERROR)
  else
    message.tell('Nothing found: ' .. search.title)
  end
end

---@param type string
---@param fn fun(search: sanderling.inline.finding.Search, event: table)
local function on(type, fn)
  bus.subscribe(type, function(session_id, event)
    local search = running
    if search and search.session.id == session_id then
      locked.retry(function()
        if running == search then
          fn(search, event)
        end
      end, log.note_defect)
    end
  end)
end

on('error_occurred', function(search, event)
  search.problem = words.trimmed(event.message .. ' ' .. (event.remedy or ''))
end)
on('turn_ended', function(search, event)
  finish(search, event.stop_reason)
end)
for _, type in ipairs({ 'local_failed', 'local_refused' }) do
  on(type, function(search, event)
    search.problem = event.message
    finish(search, 'error')
  end)
end
on('local_closed', function(search)
  forget(search)
end)

--- Stop the running search.
---@return boolean is_stopped false: none is running
local function stop()
  local search = running
  if search then
    search.session:stop()
    forget(search)
  end
  return search ~= nil
end

--- Look for `text`; a search that is running stops. With `!`, only stop that one.
---@param text string
---@param is_stop boolean
function M.find(text, is_stop)
  local is_stopped = stop()
  if is_stop then
    return message.tell(is_stopped and 'Stopped.' or 'No search is running.')
  elseif text == '' then
    return message.ask({ prompt = 'Find places: ' }, function(answer)
      if answer and answer:find('%S') then
        M.find(answer, false)
      end
    end)
  end
  local session = chat.begin_hidden(nil, stored.project_here())
  running = {
    session = session,
    title = words.shortened(words.first_line(text), MAX_TITLE),
    win = api.nvim_get_current_win(),
  }
  sessions.take_model(session)
  session:act({ type = 'set_mode', mode = 'plan' })
  message.tell('Searching. :AgentFind! stops it.')
  session:send({ '/find ' .. text:gsub('\n', ' ') })
end

return M
