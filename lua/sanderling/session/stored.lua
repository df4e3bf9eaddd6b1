--- The sessions on disk, which the host reads and writes: what is asked about them, and what they are called.
local api = vim.api
local ask = require('sanderling.host.ask')
local config = require('sanderling.config')
local host = require('sanderling.host')
local icons = require('sanderling.ui.icons')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local refresh = require('sanderling.host.refresh')
local words = require('sanderling.ui.words')

local M = {}

local MAX_IDS = 100 -- completed without a list

---@type sanderling.SessionInfo[] as they were listed last, for completion
M.known = {}

---@return string id that sorts by time: 20261121-183005-7f3a
function M.new_id()
  local random = vim.uv.random(2)
  return ('%s-%02x%02x'):format(os.date('%Y%m%d-%H%M%S'), random:byte(1, 2))
end

--- Say whether `root` and its `.git` belong to this user or to root: in a directory like /tmp anybody can make a `.git`, and git
--- itself refuses such a repository ("dubious ownership"). `project/root.py` has the same rule.
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

--- The project of what is open in the current window.
---@return string
function M.root_here()
  local root = vim.fs.root(0, '.git')
  while root and not is_own(root) do
    local above = vim.fs.dirname(root)
    root = above ~= root and vim.fs.root(above, '.git') or nil
  end
  return root or vim.fn.getcwd()
end

--- The project whose sessions are meant: in a window of the chat that of its session.
---@return string
function M.project_here()
  local session = live.of_buffer(api.nvim_get_current_buf())
  return session and session.project or M.root_here()
end

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
function M.ask(request, on_answer)
  ask(request, on_answer, fail)
end

---@param infos sanderling.SessionInfo[] newest first
---@return sanderling.SessionInfo?
function M.newest_closed(infos)
  for _, info in ipairs(infos) do
    if not info.is_open and not live.find(info.id) then
      return info
    end
  end
end

-- words ---------------------------------------------------------------------------------------------------------------

---@param seconds number since then
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

--- Say below an empty transcript that the conversation before can go on, if there is one. It starts no host, and keeps nobody
--- waiting.
---@param session sanderling.chat.session.Session
function M.hint(session)
  vim.schedule(function() -- a prompt that is about to be sent goes first
    if not session.is_fresh or not host.is_running() then
      return
    end
    local id = session.id
    ask({ type = 'list_sessions', project = session.project }, function(result)
      M.known = result.sessions
      local info = M.newest_closed(M.known)
      if info and session.id == id then
        local ago = M.age(os.time() - info.changed_at)
        session:set_hint(
          (':AgentResume goes on with %s, %s.'):format(icons.quoted(M.name_of(info)), ago)
        )
      end
    end, function() end)
  end)
end

--- The title of a session that was listed, quoted.
---@param id string
---@return string?
function M.title_of(id)
  for _, info in ipairs(M.known) do
    if info.id == id then
      return icons.quoted(M.name_of(info))
    end
  end
end

--- Have the sessions of a project listed, for what completes them next.
---@param project string
function M.refresh(project)
  refresh({ type = 'list_sessions', project = project }, function(result)
    M.known = result.sessions
  end)
end

-- completion ----------------------------------------------------------------------------------------------------------

--- The ids of those that were listed last; the titles of sessions lead to theirs, too.
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

--- The ids of sessions as their files have them, the newest first: they begin with the time.
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

--- Complete an id: of the sessions that were listed last, else of those that have files.
---@param lead string
---@return string[]
function M.complete(lead)
  M.refresh(M.project_here())
  return #M.known > 0 and M.ids(lead) or words.beginning_with(ids_of_files(), lead)
end

return M
