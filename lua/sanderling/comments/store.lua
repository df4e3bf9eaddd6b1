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
---@field number? integer in the prompt that it was sent with
---@field claim? string what the model answered
---@field is_changed? boolean the turn that answered it changed its lines

---@type table<string, sanderling.comments.Comment[]> by project, in the order of their ids
local by_project = {}

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
  id = 'string',
  path = 'string',
  name = 'string',
  first = 'number',
  last = 'number',
  lines = 'table',
  text = 'string',
}

local OPTIONAL =
  { number = 'number', claim = 'string', is_changed = 'boolean', is_finding = 'boolean' }

---@param value? table
---@param project string
---@return boolean
local function is_comment(value, project)
  return value ~= nil
    and value.project == project
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

--- Return the comments of a project, read from disk at the first call.
---@param project string
---@return sanderling.comments.Comment[]
function M.of(project)
  if not by_project[project] then
    local list = {}
    for name in vim.fs.dir(directory(project)) do
      local value = name:find('%.json$')
        and private_file.read(vim.fs.joinpath(directory(project), name))
      if value and is_comment(value, project) then
        if value.state ~= 'answered' then
          value.state = 'open' -- Neovim ended before the answer came
        end
        list[#list + 1] = value
      end
    end
    table.sort(list, function(a, b)
      return a.id < b.id
    end)
    by_project[project] = list
  end
  return by_project[project]
end

---@return sanderling.comments.Comment[] of all projects that were asked for
function M.all()
  return vim.iter(vim.tbl_values(by_project)):flatten():totable()
end

--- Write a comment that has changed.
---@param comment sanderling.comments.Comment
---@return boolean is_written
function M.save(comment)
  return private_file.write(path_of(comment), comment)
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
  table.insert(M.of(comment.project), comment)
  return comment, M.save(comment)
end

---@param comment sanderling.comments.Comment
function M.remove(comment)
  local list = M.of(comment.project)
  for i, each in ipairs(list) do
    if each == comment then
      table.remove(list, i)
    end
  end
  vim.uv.fs_unlink(path_of(comment))
end

return M
