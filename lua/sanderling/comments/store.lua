--- Review comments of each project, in memory and on disk. Each has a private file of its own, so several Neovims and
--- `kill -9` lose none.
local M = {}

local private_file = require('sanderling.access.private_file')

M.MESSAGE = 'Your message' -- the name of a place in the chat, whose lines the model does not count

--- What the user, or a review by the model, says about lines.
---@class (exact) sanderling.comments.Comment
---@field id string sorts by time
---@field project string
---@field path string absolute; empty: its buffer has no file
---@field name string the place as the prompt names it
---@field first integer line, from 1
---@field last integer
---@field lines string[] the text that it is about
---@field text string
---@field state 'open'|'sent'|'answered'
---@field is_finding? boolean a review by the model found it
---@field sender? integer process id of the Neovim that has sent it
---@field number? integer in the prompt that it was sent with
---@field claim? string what the model answered
---@field is_changed? boolean the turn that answered it changed its lines

---@type table<string, sanderling.comments.Comment[]> by project, in the order of their ids
local by_project = {}

---@type table<string, string> of the file of each comment, as this Neovim last read or wrote it
local versions = {}
---@type table<string, string> of the directory of each project: every file that is written or removed changes it
local scanned = {}

--- Fields that another Neovim changes. Where the lines are, each knows from its own buffers.
local ANSWERED = { 'text', 'state', 'number', 'claim', 'is_changed', 'is_finding', 'sender' }

local serial = 0

---@return string
local function new_id()
  serial = serial + 1
  local now = assert(vim.uv.clock_gettime('realtime'))
  return ('%d%09d-%d-%04d'):format(now.sec, now.nsec, vim.fn.getpid(), serial)
end

---@param project string
---@return string
local function directory(project)
  return private_file.path('comments', vim.fn.sha256(project):sub(1, 16))
end

---@param comment sanderling.comments.Comment
---@return string
local function path_of(comment)
  return vim.fs.joinpath(directory(comment.project), comment.id .. '.json')
end

local FIELDS = {
  path = 'string',
  name = 'string',
  first = 'number',
  last = 'number',
  lines = 'table',
  text = 'string',
  state = 'string',
}

local OPTIONAL = {
  number = 'number',
  claim = 'string',
  is_changed = 'boolean',
  is_finding = 'boolean',
  sender = 'number',
}

---@param value? table
---@param project string
---@param id string
---@return boolean
local function is_comment(value, project, id)
  return value ~= nil
    and value.project == project
    and value.id == id
    and vim.iter(FIELDS):all(function(name, type_)
      return type(value[name]) == type_
    end)
    and vim.iter({ value.first, value.last }):all(function(lnum)
      return lnum >= 1 and lnum < math.huge and lnum % 1 == 0
    end)
    and vim.iter(pairs(value.lines)):all(function(_, line)
      return type(line) == 'string'
    end)
    and vim.iter(OPTIONAL):all(function(name, type_)
      return value[name] == nil or type(value[name]) == type_
    end)
end

--- Does the Neovim that has sent a comment still wait for its answer?
---@param pid? integer
---@return boolean
local function is_alive(pid)
  return pid ~= nil and pid ~= vim.fn.getpid() and vim.uv.kill(pid, 0) == 0
end

---@param path string
---@return string? version nil: there is no such file
local function version_of(path)
  local stat = vim.uv.fs_stat(path)
  return stat and ('%d.%d.%d'):format(stat.mtime.sec, stat.mtime.nsec, stat.ino)
end

--- Read a comment from its file, if this Neovim does not know that version of it.
---@param project string
---@param id string
---@return sanderling.comments.Comment? comment
local function read_new(project, id)
  local path = vim.fs.joinpath(directory(project), id .. '.json')
  local version = version_of(path)
  if not version or versions[id] == version then
    return nil
  end
  versions[id] = version
  local value = private_file.read(path)
  if not is_comment(value, project, id) then
    return nil
  end
  local comment = value --[[@as sanderling.comments.Comment]]
  if comment.state == 'sent' and not is_alive(comment.sender) then
    comment.state = 'open' -- that Neovim ended before the answer came
  end
  return comment
end

--- Return the comments of a project, as they are on disk now: another Neovim may have changed them.
---@param project string
---@return sanderling.comments.Comment[]
---@return sanderling.comments.Comment[] changed by another Neovim
---@return sanderling.comments.Comment[] gone removed by another Neovim
function M.of(project)
  local list = by_project[project] or {}
  by_project[project] = list
  local version = version_of(directory(project))
  if version and scanned[project] == version then
    return list, {}, {}
  end
  scanned[project] = version
  local known, exists = {}, {} ---@type table<string, sanderling.comments.Comment>, table<string, true>
  for _, comment in ipairs(list) do
    known[comment.id] = comment
  end
  local changed, gone = {}, {} ---@type sanderling.comments.Comment[], sanderling.comments.Comment[]
  for name in vim.fs.dir(directory(project)) do
    local id = name:match('^(.*)%.json$')
    local new = id and read_new(project, id)
    if id then
      exists[id] = true
    end
    if new and known[new.id] then
      for _, field in ipairs(ANSWERED) do
        known[new.id][field] = new[field]
      end
      changed[#changed + 1] = known[new.id]
    elseif new then
      list[#list + 1] = new
    end
  end
  for i = #list, 1, -1 do
    local id = list[i].id
    if versions[id] and not exists[id] then
      versions[id] = nil
      gone[#gone + 1] = table.remove(list, i)
    end
  end
  table.sort(list, function(a, b)
    return a.id < b.id
  end)
  return list, changed, gone
end

--- Return whether comments of a project may be on disk.
---@param project string
---@return boolean
function M.are_kept(project)
  return version_of(directory(project)) ~= nil
end

---@return sanderling.comments.Comment[] of all projects that were asked for
function M.all()
  return vim.iter(vim.tbl_values(by_project)):flatten():totable()
end

--- Change the directory of a project without reading it again, unless another Neovim has changed it, too.
---@generic T
---@param project string
---@param change fun(): T
---@return T
local function privately(project, change)
  local is_known = scanned[project] == version_of(directory(project))
  local result = change()
  scanned[project] = is_known and version_of(directory(project)) or nil
  return result
end

--- Write a comment that has changed.
---@param comment sanderling.comments.Comment
---@return boolean is_written
function M.save(comment)
  local is_written = privately(comment.project, function()
    return private_file.write(path_of(comment), comment)
  end)
  versions[comment.id] = is_written and version_of(path_of(comment)) or versions[comment.id]
  return is_written
end

--- Write a comment that has only moved, unless another Neovim has removed it.
---@param comment sanderling.comments.Comment
function M.save_place(comment)
  if vim.uv.fs_stat(path_of(comment)) then
    M.save(comment)
  end
end

--- Add a comment.
---@param fields table a sanderling.comments.Comment without id and state
---@return sanderling.comments.Comment
---@return boolean is_written
function M.add(fields)
  local comment = vim.tbl_extend('error', fields, { id = new_id(), state = 'open' })
  local list = M.of(comment.project)
  local is_written = M.save(comment)
  table.insert(list, comment)
  return comment, is_written
end

---@param comment sanderling.comments.Comment
function M.remove(comment)
  local list = by_project[comment.project] or {}
  for i, each in ipairs(list) do
    if each == comment then
      table.remove(list, i)
    end
  end
  versions[comment.id] = nil
  privately(comment.project, function()
    vim.uv.fs_unlink(path_of(comment))
  end)
end

return M
