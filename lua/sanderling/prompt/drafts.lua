--- Drafts: unsent prompts, saved to disk. After Neovim was killed, a draft comes back when its session is opened again,
--- or, if that session was empty, with the next session of the project. There is one private file per session, and none
--- for an empty prompt.
local M = {}

local private_file = require('sanderling.access.private_file')
local slash = require('sanderling.prompt.slash')

local DELAY_MS = 300 -- after the last key

---@class (exact) sanderling.prompt.drafts.Draft
---@field project string
---@field pid integer of the Neovim that has the prompt
---@field is_fresh boolean the session is empty
---@field text string

---@type table<string, sanderling.prompt.drafts.Draft> drafts to write, by session id
local due = {}

---@return string
local function directory()
  return private_file.path('drafts')
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
  if draft then
    private_file.write(path_of(session_id), draft) -- if this fails, the draft is not saved
  end
end

vim.api.nvim_create_autocmd('VimLeavePre', {
  group = vim.api.nvim_create_augroup('sanderling_drafts', {}),
  desc = 'Agent: save unsent prompts',
  callback = function()
    vim.iter(vim.tbl_keys(due)):each(write)
  end,
})

---@param session_id string
function M.drop(session_id)
  due[session_id] = nil
  vim.uv.fs_unlink(path_of(session_id))
end

--- Save `text` as a draft, unless it is empty or may contain a secret.
---@param session_id string
---@param project string
---@param is_fresh boolean the session is empty
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
---@return sanderling.prompt.drafts.Draft? of a Neovim that no longer runs
local function left_behind(session_id)
  local draft = private_file.read(path_of(session_id))
  local is_draft = draft and type(draft.text) == 'string'
  local is_over = is_draft and type(draft.pid) == 'number' and vim.uv.kill(draft.pid, 0) ~= 0
  return is_over and draft or nil
end

--- Return and delete the session's draft, if it is of a Neovim that no longer runs.
---@param session_id string
---@return string? text
function M.take(session_id)
  local draft = left_behind(session_id)
  if draft then
    M.drop(session_id)
    return draft.text
  end
end

--- Return and delete the newest draft of an empty session of the project.
---@param project string
---@return string? text
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
