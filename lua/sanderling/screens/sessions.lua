--- Stored sessions: choose, resume, rename, fork, export and delete them.
local api = vim.api
local lazy = require('sanderling.ui.lazy')
local approval = lazy('sanderling.approval')
local ask = require('sanderling.host.ask')
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local icons = require('sanderling.ui.icons')
local list = require('sanderling.screens.session_list')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local picker = lazy('sanderling.picker')
local queue = require('sanderling.approval.queue')
local stored = require('sanderling.session.stored')
local words = require('sanderling.ui.words')

local M = {}

local MAX_NAME_CHARS = 60 -- of an exported file

---@param info sanderling.SessionInfo
---@param show fun(text: string)
local function preview(info, show)
  ask({ type = 'preview_session', session_id = info.id }, function(result)
    show(result.text)
  end, show)
end

-- actions -------------------------------------------------------------------------------------------------------------

--- Show a session. Enter its prompt unless the user has moved on meanwhile.
---@param info { id: string, project: string }
---@param is_here? boolean default true
---@return sanderling.chat.session.Session
local function resume(info, is_here)
  return chat.open(info.id, info.project, { focus = is_here ~= false })
end

--- Copy a session, optionally only up to a prompt, and show the copy.
---@param info { id: string, project: string }
---@param at? { prompt_id: string, is_prompt: boolean } is_prompt: exclude the prompt itself and put its text into the new session's prompt
---@param show? fun(new_id: string): sanderling.chat.session.Session
local function fork(info, at, show)
  stored.fork(info, at, function(copy, prompt, is_here)
    local session = show and show(copy.id) or resume(copy, is_here)
    if prompt ~= '' then
      session.prompt:put_back({ prompt })
    end
  end)
end

---@param info { id: string, title: string }
---@param title string
local function set_title(info, title)
  local session = live.find(info.id)
  if session then
    session:act({ type = 'set_title', title = title })
  else
    stored.ask({ type = 'rename_session', session_id = info.id, title = title }, function()
      message.tell(('Session renamed to %s.'):format(icons.quoted(title)))
    end)
  end
end

---@param info { id: string, title: string }
---@param title string empty: ask for it
local function rename(info, title)
  if title ~= '' then
    return set_title(info, title)
  end
  message.ask({ prompt = 'Title: ', default = info.title }, function(answer)
    answer = words.trimmed(answer or '')
    if answer ~= '' then
      set_title(info, answer)
    end
  end)
end

---@param info { id: string, project: string, title: string }
---@return string suggested path
local function export_path(info)
  local stem = words.trimmed((info.title:gsub('[%s%c/\\:*?"<>|$~]+', ' ')))
  stem = stem ~= '' and vim.fn.strcharpart(stem, 0, MAX_NAME_CHARS) or info.id
  return vim.fs.joinpath(info.project, stem .. '.md')
end

---@param info { id: string, project: string, title: string }
---@param path string empty: ask for it
local function export(info, path)
  local function write(answer)
    answer = words.trimmed(answer or '')
    if answer ~= '' then
      local absolute = vim.fn.fnamemodify(vim.fs.normalize(answer), ':p')
      local request = { type = 'export_session', session_id = info.id, path = absolute }
      stored.ask(request, function(result)
        message.tell('Exported to ' .. vim.fn.fnamemodify(result.path, ':~:.'))
      end)
    end
  end
  if path ~= '' then
    return write(path)
  end
  message.ask({
    prompt = 'Export to: ',
    default = vim.fn.fnamemodify(export_path(info), ':~:.'),
    completion = 'file',
  }, write)
end

---@param info sanderling.SessionInfo
local function delete(info)
  local name = icons.quoted(stored.name_of(info))
  local prompt = ('Permanently delete %s and the output of its commands:'):format(name)
  message.confirm(prompt, { 'Delete it', 'Keep it' }, function()
    stored.ask({ type = 'delete_session', session_id = info.id }, function()
      message.tell(('Deleted %s.'):format(name))
    end)
  end)
end

---@param entry sanderling.screens.session_list.Entry
local function show(entry)
  if entry.child then
    chat.open_child(entry.id, entry.project, {})
  else
    resume(entry)
  end
end

--- Go to the first question of a session.
---@param entry sanderling.screens.session_list.Entry
local function answer(entry)
  local _, index = list.question_of(entry)
  if index then
    queue.show(index)
    approval.focus()
  end
end

---@param entry sanderling.screens.session_list.Entry
local function stop(entry)
  if entry.child then
    chat.stop_child(entry.id)
  elseif entry.session then
    entry.session:stop()
  end
end

---@param fn fun(info: sanderling.SessionInfo, argument: string)
---@return fun(info: sanderling.SessionInfo)
local function asking(fn)
  return function(info)
    fn(info, '')
  end
end

---@type sanderling.picker.Action[]
local ACTIONS = {
  {
    name = function(info)
      return (live.find(info.id) or list.is_running(info)) and 'Show' or 'Resume'
    end,
    run = show,
  },
  {
    name = 'Answer its question',
    key = { 'pick_answer', 'answer' },
    run = answer,
    refusal = function(entry)
      return not list.question_of(entry) and 'This session asks nothing.' or nil
    end,
  },
  {
    name = 'Stop',
    key = { 'pick_stop', 'stop' },
    run = stop,
    refusal = function(entry)
      return not list.is_running(entry) and 'Nothing is running in this session.' or nil
    end,
  },
  { name = 'Rename', key = { 'pick_rename', 'rename' }, run = asking(rename) },
  { name = 'Fork', key = { 'pick_fork', 'fork' }, run = fork },
  { name = 'Export as Markdown', key = { 'pick_export', 'export' }, run = asking(export) },
  {
    name = 'Delete',
    key = { 'pick_delete', 'delete' },
    run = delete,
    refusal = function(info)
      if list.is_running(info) and not info.session then
        return 'The session is running. Stop it first.'
      end
      return info.session and 'The session is open. Close it first, with :Agent close.' or nil
    end,
  },
}

-- choosing a session --------------------------------------------------------------------------------------------------

--- Let the user choose one of the sessions, and what to do with it: first those that wait for the user, then those that run.
---@param text string only sessions that contain it; empty: all
---@param is_everywhere boolean sessions of all projects
function M.pick(text, is_everywhere)
  local project = is_everywhere and '' or stored.project_here()
  stored.ask({ type = 'list_sessions', project = project, text = text }, function(result, is_here)
    local entries = list.entries(result.sessions, text ~= '')
    if #entries == 0 then
      local where = is_everywhere and 'session' or 'session of this project'
      local what = text ~= '' and ('No %s contains %s.'):format(where, icons.quoted(text))
        or ('No %s yet.'):format(where)
      message.tell(what)
      return
    end
    stored.known = result.sessions
    if not is_here then
      message.tell('Sessions loaded. Run :AgentSessions again to choose one.')
      return
    end
    picker.choose(entries, {
      title = 'Sessions',
      kind = 'sanderling_session',
      line_of = list.lines_of(entries, is_everywhere),
      preview = preview,
      actions = ACTIONS,
    })
  end)
end

--- Resume the newest session of the list that is not open. Name a newer one that is open elsewhere.
---@param is_here boolean
local function resume_newest(is_here)
  local info, newest = stored.newest_closed(stored.known), stored.known[1]
  if newest and newest.is_open and not live.find(newest.id) then
    local name = icons.quoted(stored.name_of(newest))
    local before = info and '; this is the one before' or ', and there is no other one to resume'
    message.tell(('%s is open elsewhere%s.'):format(name, before))
  elseif not info then
    message.tell('This project has no other session to resume.')
  end
  if info then
    resume(info, is_here)
  end
end

--- Resume the session `id` of any project.
---@param id string
---@param on_resumed? fun(session: sanderling.chat.session.Session)
function M.with(id, on_resumed)
  stored.ask({ type = 'list_sessions', project = '', has_printed = true }, function(result, is_here)
    stored.known = result.sessions
    for _, info in ipairs(stored.known) do
      if info.id == id then
        local session = resume(info, is_here)
        return on_resumed and on_resumed(session)
      end
    end
    message.tell(('There is no session %s. :AgentSessions lists them.'):format(id))
  end)
end

--- Resume the session `id` of any project, or the newest one of this project that is not open.
---@param id string empty: the newest
function M.resume(id)
  if id ~= '' then
    return M.with(id)
  end
  local request = { type = 'list_sessions', project = stored.project_here() }
  stored.ask(request, function(result, is_here)
    stored.known = result.sessions
    resume_newest(is_here)
  end)
end

---@param session sanderling.chat.session.Session
---@return { id: string, project: string, title: string }
local function info_of(session)
  return { id = session.id, project = session.project, title = session.state.title }
end

--- Return the current session. If there is none, or it is empty, say so.
---@return sanderling.chat.session.Session?
local function session_with_words()
  local session = live.current()
  if session and not session.is_fresh then
    return session
  end
  message.tell(session and 'This session is empty.' or 'No session is open.')
end

--- Fork the current session. In its transcript, the copy ends at the message under the cursor.
function M.fork()
  local session = session_with_words()
  if not session then
    return
  end
  local transcript, at = session.transcript, nil
  if api.nvim_get_current_buf() == session.transcript_buf then
    at = transcript:message_at(vim.fn.line('.') - 1)
    if not at and transcript.has_earlier then
      return message.tell('Scroll up to load the start of this turn first.')
    end
  end
  fork(session, at)
end

---@param title string empty: ask for it
function M.rename(title)
  local session = session_with_words()
  if session then
    rename(info_of(session), words.trimmed(title))
  end
end

---@param path string empty: ask for it
function M.export(path)
  local session = session_with_words()
  if session then
    export(info_of(session), path)
  end
end

--- Another process has the session open, and only one may write its log: offer to fork it.
---@param session sanderling.chat.session.Session
local function offer_fork(session)
  local answers = { 'Fork it: continue in a copy', 'Leave it' }
  local function is_empty()
    return session.is_fresh and live.find(session.id) == session
  end
  local function take_its_place(id)
    return chat.replace(session, id, session.project)
  end
  message.confirm('Another Neovim has this session open:', answers, function()
    fork(session, nil, is_empty() and take_its_place or nil)
  end, function()
    if is_empty() then
      take_its_place(stored.new_id())
    end
  end)
end

bus.subscribe('local_in_use', function(session_id)
  vim.schedule_wrap(offer_fork)(assert(live.find(session_id)))
end)

return M
