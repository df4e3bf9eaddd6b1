--- Drafts: what stands unsent in a prompt, on disk. After a Neovim that was killed it comes back when its session is opened; where
--- nothing was said in that, when the next one of the project is. One file for each session, for the user alone; an empty prompt has none.
local M = {}

local slash = require('sanderling.prompt.slash')

local DELAY_MS = 300 -- after a key, before it is written

---@class (exact) sanderling.prompt.drafts.Draft
---@field project string
---@field pid integer of the Neovim in which it stands
---@field is_fresh boolean nothing was said in the session
---@field text string

---@type table<string, sanderling.prompt.drafts.Draft> that are to be written, by session id
local due = {}

---@return string
local function directory()
  return vim.fs.joinpath(vim.fn.stdpath('state'), 'sanderling', 'drafts')
end

---@param session_id string
---@return string
local function path_of(session_id)
  return vim.fs.joinpath(directory(), session_id .. '.json')
end

---@param session_id string
local function write(session_id)
  local draft = due[session_id]
  due[session_id] = nil
  if not draft then
    return
  end
  pcall(vim.fn.mkdir, directory(), 'p', tonumber('700', 8)) -- where it cannot be, no draft is kept
  local path = path_of(session_id)
  local fd = vim.uv.fs_open(path .. '.new', 'w', tonumber('600', 8))
  if fd then
    vim.uv.fs_write(fd, vim.json.encode(draft))
    vim.uv.fs_close(fd)
    vim.uv.fs_rename(path .. '.new', path)
  end
end

vim.api.nvim_create_autocmd('VimLeavePre', {
  group = vim.api.nvim_create_augroup('sanderling_drafts', {}),
  desc = 'Agent: keep what is unsent',
  callback = function()
    vim.iter(vim.tbl_keys(due)):each(write)
  end,
})

--- There is nothing unsent in the session any more.
---@param session_id string
function M.drop(session_id)
  due[session_id] = nil
  vim.uv.fs_unlink(path_of(session_id))
end

--- Keep `text`, unless it may hold what is kept nowhere.
---@param session_id string
---@param project string
---@param is_fresh boolean nothing was said in the session
---@param text string
function M.keep(session_id, project, is_fresh, text)
  if not text:find('%S') or not slash.is_kept(text) then
    M.drop(session_id)
    return
  end
  local is_due = due[session_id] ~= nil
  due[session_id] = { project = project, pid = vim.fn.getpid(), is_fresh = is_fresh, text = text }
  if not is_due then
    vim.defer_fn(function()
      write(session_id)
    end, DELAY_MS)
  end
end

---@param session_id string
---@return sanderling.prompt.drafts.Draft? of a Neovim that has ended
local function left_behind(session_id)
  local file = io.open(path_of(session_id), 'r')
  local ok, draft = pcall(vim.json.decode, file and file:read('*a') or '')
  if file then
    file:close()
  end
  local is_draft = ok and type(draft) == 'table' and type(draft.text) == 'string'
  local is_over = is_draft and type(draft.pid) == 'number' and vim.uv.kill(draft.pid, 0) ~= 0
  return is_over and draft or nil
end

--- Take what a Neovim that has ended has left in the session's prompt.
---@param session_id string
---@return string? text
function M.take(session_id)
  local draft = left_behind(session_id)
  if draft then
    M.drop(session_id)
    return draft.text
  end
end

--- Take what was left in a session of the project in which nothing was said, so that nothing else brings it back.
---@param project string
---@return string? text the newest
function M.take_fresh(project)
  local ids = {}
  for name in vim.fs.dir(directory()) do
    ids[#ids + 1] = name:match('^(.+)%.json$')
  end
  table.sort(ids)
  for i = #ids, 1, -1 do
    local draft = left_behind(ids[i])
    if draft and draft.is_fresh and draft.project == project then
      return M.take(ids[i])
    end
  end
end

return M
