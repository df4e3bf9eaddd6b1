--- Sessions on disk: found, resumed, renamed, forked, exported, deleted. The host reads and writes them; what is asked here goes
--- through vim.ui, so that any picker works.
local api = vim.api
local attention = require('sanderling.ui.attention')
local host = require('sanderling.host')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local session_module = require('sanderling.chat.session')
local tools = require('sanderling.transcript.blocks.tool')

local M = {}

local MAX_NAME_CHARS = 60 -- of an exported file
local MAX_WAIT_MS = 2000 -- of a person who completes an id, while the host starts

---@type sanderling.SessionInfo[] as they were listed last, for completion
local known = {}

--- Say what went wrong: whole in the transcript, if that is on the screen.
---@param text string
local function fail(text)
  local session = live.current()
  if session and session:is_on_screen() then
    session:refuse(text)
  else
    message.tell(text, vim.log.levels.ERROR)
  end
end

---@param request sanderling.Request
---@param on_answer fun(result: table, is_here: boolean) not called when it failed, which is told; is_here: somebody still waits
local function ask(request, on_answer)
  local is_here = attention.watch()
  host.request(request, function(result)
    if result.error then
      fail(result.error)
    else
      on_answer(result, is_here())
    end
  end)
end

--- The project whose sessions are meant: in a window of the chat that of its session.
---@return string
function M.project_here()
  local session = live.of_buffer(api.nvim_get_current_buf())
  return session and session.project or session_module.project_here()
end

---@param infos sanderling.SessionInfo[] newest first
---@return sanderling.SessionInfo?
local function newest_closed(infos)
  for _, info in ipairs(infos) do
    if not info.is_open and not live.find(info.id) then
      return info
    end
  end
end

-- words ---------------------------------------------------------------------------------------------------------------

---@param seconds number since then
---@return string
local function age(seconds)
  if seconds < 60 then
    return 'just now'
  elseif seconds < 3600 then
    return ('%d min ago'):format(seconds / 60)
  elseif seconds < 24 * 3600 then
    return ('%d h ago'):format(seconds / 3600)
  end
  local days = math.floor(seconds / 24 / 3600)
  return days == 1 and 'yesterday' or ('%d days ago'):format(days)
end

---@param bytes integer
---@return string
local function size(bytes)
  if bytes < 1e6 then
    return ('%d kB'):format(math.ceil(bytes / 1000))
  end
  return ('%.1f MB'):format(bytes / 1e6)
end

---@param info sanderling.SessionInfo
---@return string
local function name_of(info)
  return info.title ~= '' and tools.plain(info.title) or info.id
end

---@param info sanderling.SessionInfo
---@param is_everywhere boolean
---@return string
local function line_of(info, is_everywhere)
  local is_open = info.is_open or live.find(info.id)
  local parts = { name_of(info), age(os.time() - info.changed_at), size(info.size_bytes) }
  if is_open then
    parts[#parts + 1] = 'open'
  end
  if is_everywhere then
    parts[#parts + 1] = vim.fn.fnamemodify(info.project, ':~')
  end
  if (info.excerpt or '') ~= '' then
    parts[#parts + 1] = ('“%s”'):format(tools.plain(info.excerpt))
  end
  return table.concat(parts, ' · ')
end

-- what can be done with one -------------------------------------------------------------------------------------------

--- Show a session, and go to it unless the user has gone on to something else.
---@param info { id: string, project: string }
---@param is_here? boolean true unless said otherwise
---@return sanderling.chat.session.Session
local function resume(info, is_here)
  return require('sanderling.chat').open(info.id, info.project, { focus = is_here ~= false })
end

--- Make a session of what another holds, up to a prompt if one is named, and show it.
---@param info { id: string, project: string }
---@param at? { prompt_id: string, is_prompt: boolean } is_prompt: without it; its words are to be sent anew
---@param show? fun(new_id: string): sanderling.chat.session.Session
local function fork(info, at, show)
  local request = {
    type = 'fork_session',
    session_id = info.id,
    new_id = session_module.new_id(),
    prompt_id = at and at.prompt_id or '',
    is_before = at ~= nil and at.is_prompt,
  }
  ask(request, function(result, is_here)
    local new = { id = request.new_id, project = info.project }
    local session = show and show(new.id) or resume(new, is_here)
    if (result.prompt or '') ~= '' then
      session.prompt:put_back({ result.prompt })
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
    ask({ type = 'rename_session', session_id = info.id, title = title }, function()
      message.tell(('The session is called “%s” now.'):format(title))
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
    answer = vim.trim(answer or '')
    if answer ~= '' then
      set_title(info, answer)
    end
  end)
end

---@param info { id: string, project: string, title: string }
---@return string path that is proposed
local function export_path(info)
  local stem = vim.trim((info.title:gsub('[%s%c/\\:*?"<>|$~]+', ' ')))
  stem = stem ~= '' and vim.fn.strcharpart(stem, 0, MAX_NAME_CHARS) or info.id
  return vim.fs.joinpath(info.project, stem .. '.md')
end

---@param info { id: string, project: string, title: string }
---@param path string empty: ask for it
local function export(info, path)
  local function write(answer)
    answer = vim.trim(answer or '')
    if answer ~= '' then
      local absolute = vim.fn.fnamemodify(vim.fs.normalize(answer), ':p')
      local request = { type = 'export_session', session_id = info.id, path = absolute }
      ask(request, function(result)
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
  local choices = { 'Delete it', 'Keep it' }
  vim.ui.select(choices, {
    prompt = ('Delete “%s” and what its commands put out, for good:'):format(name_of(info)),
  }, function(choice)
    if choice == choices[1] then
      ask({ type = 'delete_session', session_id = info.id }, function()
        message.tell(('“%s” is deleted.'):format(name_of(info)))
      end)
    end
  end)
end

---@param info sanderling.SessionInfo
local function offer_actions(info)
  local is_open = live.find(info.id) ~= nil
  local actions = {
    { name = is_open and 'Show' or 'Resume', run = resume },
    { name = 'Rename', run = rename, argument = '' },
    { name = 'Fork', run = fork },
    { name = 'Export as Markdown', run = export, argument = '' },
    not is_open and { name = 'Delete', run = delete } or nil,
  }
  vim.ui.select(actions, {
    prompt = name_of(info) .. ':',
    kind = 'sanderling_action',
    format_item = function(action)
      return action.name
    end,
  }, function(action)
    if action then
      action.run(info, action.argument)
    end
  end)
end

-- which one -----------------------------------------------------------------------------------------------------------

--- Choose one of the sessions, newest first, and what to do with it.
---@param text string only those in which it was said; empty: all
---@param is_everywhere boolean those of all projects
function M.pick(text, is_everywhere)
  local project = is_everywhere and '' or M.project_here()
  ask({ type = 'list_sessions', project = project, text = text }, function(result, is_here)
    local infos = result.sessions
    if #infos == 0 then
      local where = is_everywhere and 'session' or 'session of this project'
      local what = text ~= '' and ('No %s holds “%s”.'):format(where, text)
        or ('There is no %s yet.'):format(where)
      message.tell(what)
      return
    end
    known = infos
    if not is_here then
      message.tell(
        'The sessions are found, but you are elsewhere: :AgentSessions finds them again.'
      )
      return
    end
    vim.ui.select(infos, {
      prompt = 'Sessions:',
      kind = 'sanderling_session',
      format_item = function(info)
        return line_of(info, is_everywhere)
      end,
    }, function(info)
      if info then
        offer_actions(info)
      end
    end)
  end)
end

--- Resume the session `id`, of whatever project, or the newest one of this project that is not open.
---@param id string empty: the newest
function M.resume(id)
  local project = id == '' and M.project_here() or ''
  local request = { type = 'list_sessions', project = project, has_printed = id ~= '' }
  ask(request, function(result, is_here)
    known = result.sessions
    if id == '' then
      local info = newest_closed(known)
      if info then
        return resume(info, is_here)
      end
      return message.tell('This project has no other session to go on with.')
    end
    for _, info in ipairs(known) do
      if info.id == id then
        return resume(info, is_here)
      end
    end
    message.tell(('There is no session %s: :AgentSessions lists them.'):format(id))
  end)
end

--- The current session; says so when there is none, or nothing was said in it.
---@return sanderling.chat.session.Session?
local function session_with_words()
  local session = live.current()
  if session and not session.is_fresh then
    return session
  end
  message.tell(session and 'Nothing was said in this session yet.' or 'No session is open.')
end

--- Make a session of what the current one holds: up to the message under the cursor, when that is in its transcript.
function M.fork()
  local session = session_with_words()
  if not session then
    return
  end
  local transcript, at = session.transcript, nil
  if api.nvim_get_current_buf() == session.transcript_buf then
    at = transcript:message_at(vim.fn.line('.') - 1)
    if not at and transcript.has_earlier then
      return message.tell(
        'This turn has begun before what is shown: scroll up to its prompt first.'
      )
    end
  end
  fork(session, at)
end

---@param title string empty: ask for it
function M.rename(title)
  local session = session_with_words()
  if session then
    rename(session, vim.trim(title))
  end
end

---@param path string empty: ask for it
function M.export(path)
  local session = session_with_words()
  if session then
    export(session, path)
  end
end

--- Another process has the session open: two must not write one log.
---@param session sanderling.chat.session.Session
function M.offer_fork(session)
  local chat = require('sanderling.chat')
  local choices = { 'Fork it: go on with a copy', 'Leave it' }
  vim.ui.select(choices, { prompt = 'Another Neovim has this session open:' }, function(choice)
    local is_empty = session.is_fresh and live.find(session.id) == session
    local function take_its_place(id)
      return chat.replace(session, id, session.project)
    end
    if choice == choices[1] then
      fork(session, nil, is_empty and take_its_place or nil)
    elseif is_empty then
      take_its_place(session_module.new_id())
    end
  end)
end

--- Say below an empty transcript that the conversation before can go on, if there is one. It starts no host, and keeps nobody
--- waiting.
---@param session sanderling.chat.session.Session
function M.hint(session)
  vim.schedule(function() -- a prompt that is about to be sent goes first
    if not session.is_fresh or not host.is_running() then
      return
    end
    local id = session.id
    host.request({ type = 'list_sessions', project = session.project }, function(result)
      known = result.sessions or known
      local info = newest_closed(result.sessions or {})
      if info and session.id == id then
        local ago = age(os.time() - info.changed_at)
        session:set_hint((':AgentResume goes on with “%s”, %s.'):format(name_of(info), ago))
      end
    end)
  end)
end

--- The ids of those that were listed last; the titles of sessions lead to theirs, too.
---@param lead string
---@return string[]
function M.ids(lead)
  local ids = {}
  for _, info in ipairs(known) do
    local is_meant = vim.startswith(info.id, lead)
      or info.title:lower():find(lead:lower(), 1, true) ~= nil
    if is_meant then
      ids[#ids + 1] = info.id
    end
  end
  return ids
end

--- Complete an id for a person who has asked for it: what is known, else what the host says.
---@param lead string
---@return string[]
function M.complete(lead)
  local has_answered = #known > 0
  host.request({ type = 'list_sessions', project = M.project_here() }, function(result)
    known, has_answered = result.sessions or known, true
  end)
  vim.wait(MAX_WAIT_MS, function()
    return has_answered
  end, 5)
  return M.ids(lead)
end

return M
