--- The stored sessions, which the host reads and writes: requests about them, their names, completion.
local api = vim.api
local ask = require('sanderling.host.ask')
local config = require('sanderling.config')
local ending = require('sanderling.session.ending')
local host = require('sanderling.host')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local refresh = require('sanderling.host.refresh')
local words = require('sanderling.ui.words')

local M = {}

local MAX_IDS = 100 -- number of ids completed before a list was requested

---@type sanderling.SessionInfo[] the last list, for completion
M.known = {}

---@return string id that sorts by time: 20261121-183005-7f3a
function M.new_id()
  local random = vim.uv.random(2)
  return ('%s-%02x%02x'):format(os.date('%Y%m%d-%H%M%S'), random:byte(1, 2))
end

--- Return whether `root` and its `.git` belong to this user or to root. Anyone can create a `.git` in a directory such
--- as /tmp, and git itself refuses such a repository ("dubious ownership"). `project/root.py` has the same rule.
---@param root string
---@return boolean
local function is_own(root)
  local trusted = { [0] = true, [vim.uv.getuid()] = true }
  if vim.uv.getuid() == 0 then
    trusted[tonumber(vim.env.SUDO_UID) or 0] = true
  end
  local dot_git = root .. '/.git'
  local found = { vim.uv.fs_stat(dot_git), vim.uv.fs_lstat(dot_git), vim.uv.fs_stat(root) }
  return vim.iter(found):all(function(stat)
    return trusted[stat.uid] ~= nil
  end)
end

--- Return the project of the file in the current window.
---@return string
function M.root_here()
  local root = vim.fs.root(0, '.git')
  while root and not is_own(root) do
    local above = vim.fs.dirname(root)
    root = above ~= root and vim.fs.root(above, '.git') or nil
  end
  return root or vim.fn.getcwd()
end

--- Return the project that commands apply to: the session's in a window of the chat, else that of the current file.
---@return string
function M.project_here()
  local session = live.of_buffer(api.nvim_get_current_buf())
  return session and session.project or M.root_here()
end

--- Report an error: in the transcript if it is on the screen, else as a message.
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
---@param on_answer fun(result: table, is_here: boolean) not called on an error, which is reported; is_here: the user has not moved on meanwhile
function M.ask(request, on_answer)
  ask(request, on_answer, fail)
end

--- Copy a session, optionally only up to a prompt.
---@param info { id: string, project: string }
---@param at? { prompt_id: string, is_prompt: boolean } is_prompt: exclude the prompt itself
---@param on_copied fun(copy: { id: string, project: string }, prompt: string, is_here: boolean) prompt: the excluded one, else empty
function M.fork(info, at, on_copied)
  local request = {
    type = 'fork_session',
    session_id = info.id,
    new_id = M.new_id(),
    prompt_id = at and at.prompt_id or '',
    is_before = at ~= nil and at.is_prompt,
  }
  M.ask(request, function(result, is_here)
    local copy = { id = request.new_id, project = info.project }
    on_copied(copy, result.prompt or '', is_here)
  end)
end

---@param infos sanderling.SessionInfo[] newest first
---@return sanderling.SessionInfo?
function M.newest_closed(infos)
  for _, info in ipairs(infos) do
    if not info.is_open and not live.find(info.id) and (info.parent or '') == '' then
      return info
    end
  end
end

-- names ---------------------------------------------------------------------------------------------------------------

---@param seconds number elapsed
---@return string
function M.age(seconds)
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

---@param info sanderling.SessionInfo
---@return string
function M.name_of(info)
  return info.title ~= '' and words.plain(info.title) or info.id
end

local MAX_READ_BYTES = 8e6 -- of a session that the user has not asked about
local is_hint_due = true -- in the first chat

--- Add to the hint how many corrections the last session has, once. This reads the whole session.
---@param session sanderling.chat.session.Session
---@param info sanderling.SessionInfo
---@param hint string
local function hint_at_corrections(session, info, hint)
  local id = session.id
  if is_hint_due and info.size_bytes < MAX_READ_BYTES then
    is_hint_due = false
    ending.count(info.id, function(found)
      if session.is_fresh and session.id == id then
        session:set_hint(('%s It has %s'):format(hint, found))
      end
    end)
  end
end

--- Show a hint below an empty transcript if an earlier session can be resumed. This starts no host and blocks nothing.
---@param session sanderling.chat.session.Session
function M.hint(session)
  vim.schedule(function() -- after a prompt that is just being sent
    if not session.is_fresh or not host.is_running() then
      return
    end
    local id = session.id
    ask({ type = 'list_sessions', project = session.project }, function(result)
      M.known = result.sessions
      local info = M.newest_closed(M.known)
      if info and session.id == id then
        local ago = M.age(os.time() - info.changed_at)
        local hint = (':AgentResume continues %s, %s.'):format(icons.quoted(M.name_of(info)), ago)
        session:set_hint(hint)
        hint_at_corrections(session, info, hint)
      end
    end, function() end)
  end)
end

--- Return the quoted title of a session in the last list.
---@param id string
---@return string?
function M.title_of(id)
  for _, info in ipairs(M.known) do
    if info.id == id then
      return icons.quoted(M.name_of(info))
    end
  end
end

---@param project string
function M.refresh(project)
  refresh({ type = 'list_sessions', project = project }, function(result)
    M.known = result.sessions
  end)
end

-- completion ----------------------------------------------------------------------------------------------------------

--- Return the ids in the last list that match `lead`, by id or title.
---@param lead string
---@return string[]
function M.ids(lead)
  local ids = {}
  for _, info in ipairs(M.known) do
    local is_meant = vim.startswith(info.id, lead)
      or info.title:lower():find(lead:lower(), 1, true) ~= nil
    if is_meant then
      ids[#ids + 1] = info.id
    end
  end
  return ids
end

--- Return the ids of stored sessions, newest first, from their file names.
---@return string[]
local function ids_of_files()
  local ids = {} ---@type string[]
  for name in vim.fs.dir(vim.fs.joinpath(config.host_settings().state_dir, 'sessions')) do
    ids[#ids + 1] = name:match('^(%d[%w-]+)%.jsonl$')
  end
  table.sort(ids, function(a, b)
    return a > b
  end)
  return vim.list_slice(ids, 1, MAX_IDS)
end

--- Complete one of `titles`, which have several words, from what the command line has of it.
---@param titles string[]
---@param lead string the last word
---@param line string
---@param pos integer
---@return string[] their rest, from the last word on
local function rest_of(titles, lead, line, pos)
  local typed = (line:sub(1, pos):match('%u%a*!?%s+(.*)$') or lead):lower()
  local found = vim.tbl_filter(function(title)
    return title ~= '' and vim.startswith(title:lower(), typed)
  end, titles)
  return vim.fn.uniq(vim.tbl_map(function(title)
    return title:sub(#typed - #lead + 1)
  end, found)) --[[@as string[] ]]
end

--- Complete a title from the last list.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete_title(lead, line, pos)
  M.refresh(M.project_here())
  local titles = vim.tbl_map(function(info)
    return words.plain(info.title)
  end, M.known)
  table.sort(titles)
  return rest_of(titles, lead, line, pos)
end

--- Complete the title of the current session, to change it.
---@param lead string
---@param line string
---@param pos integer
---@return string[]
function M.complete_own_title(lead, line, pos)
  local session = live.current()
  return session and rest_of({ words.plain(session.state.title) }, lead, line, pos) or {}
end

--- Complete an id from the last list, else from the files.
---@param lead string
---@return string[]
function M.complete(lead)
  M.refresh(M.project_here())
  return #M.known > 0 and M.ids(lead) or words.beginning_with(ids_of_files(), lead)
end

return M
