--- Files that the agent changed while no buffer held them, or before the session was resumed. Their hunks are made when
--- they are opened.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local edits = require('sanderling.editing.hunks')
local hunks = require('sanderling.review.hunks')
local live = require('sanderling.session.live')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.review.closed_files.File
---@field source sanderling.review.Source of the latest change
---@field lnum integer of the first change
---@field count integer number of changes
---@field nr integer increases with each change

---@type table<string, sanderling.review.closed_files.File> by real path
local closed = {}
local last_nr = 0

---@type fun() called when the number of changes may differ
local on_change

---@param fn fun()
function M.on_change(fn)
  on_change = fn
end

---@param path string
---@return integer? buf loaded
local function buffer_of(path)
  for _, buf in ipairs(api.nvim_list_bufs()) do
    local name = api.nvim_buf_is_loaded(buf) and api.nvim_buf_get_name(buf) or ''
    if name ~= '' and vim.uv.fs_realpath(name) == path then
      return buf
    end
  end
end

--- Make the hunks of a loaded file.
---@param buf integer
---@param path string
---@param on_done? fun()
local function make_hunks(buf, path, on_done)
  local file = closed[path]
  closed[path] = nil
  ask({
    type = 'show_difference',
    session_id = file.source.session_id,
    what = 'unreviewed',
    path = path,
  }, function(result)
    local before = result.files[1]
    if before and api.nvim_buf_is_loaded(buf) then
      hunks.add(buf, edits.lines_of(before.text or ''), file.source, before.what == 'created')
    elseif (result.left or {})[1] then
      local words_ = "Cannot show the agent's changes in %s: %s."
      message.tell(words_:format(vim.fs.basename(path), result.left[1].why), vim.log.levels.WARN)
    end
    on_change()
    if on_done then
      on_done()
    end
  end, function(sentence)
    closed[path] = file
    message.tell(sentence, vim.log.levels.WARN)
  end)
end

--- Record changes of a file that are to be reviewed later.
---@param path string
---@param lnum integer
---@param source sanderling.review.Source
---@param count integer
function M.add(path, lnum, source, count)
  path = vim.uv.fs_realpath(path) or path
  local file = closed[path] or { lnum = lnum, count = 0 }
  last_nr = last_nr + 1
  closed[path] = {
    source = source,
    lnum = math.min(lnum, file.lnum),
    count = file.count + count,
    nr = last_nr,
  }
  on_change()
end

api.nvim_create_autocmd('BufReadPost', {
  group = api.nvim_create_augroup('sanderling_closed', {}),
  desc = 'Agent: show changes made while the file was not open',
  callback = function(args)
    local path = vim.uv.fs_realpath(api.nvim_buf_get_name(args.buf))
    if path and closed[path] then
      make_hunks(args.buf, path)
    end
  end,
})

--- Drop the session's changes of a file: there is nothing left to review.
---@param session_id string
---@param path string
function M.settle(session_id, path)
  if closed[path] and closed[path].source.session_id == session_id then
    M.forget(path)
  end
end

--- Take over the unreviewed files of a resumed session, or changes that were redone.
---@param session_id string
---@param left sanderling.UnreviewedFile[]
function M.take_over(session_id, left)
  for _, file in ipairs(left) do
    M.settle(session_id, file.path)
    local buf = buffer_of(file.path)
    local is_known = buf and #hunks.list(buf) > 0
      or closed[vim.uv.fs_realpath(file.path) or file.path]
    if not is_known then
      M.add(
        file.path,
        file.line,
        { session_id = session_id, tool_use_id = '', turn = '' },
        file.count
      )
      local path = buf and vim.uv.fs_realpath(file.path)
      if buf and path then
        make_hunks(buf, path)
      end
    end
  end
end

---@param is_meant? fun(file: sanderling.review.closed_files.File): boolean
---@return table<string, sanderling.review.closed_files.File>
local function meant(is_meant)
  local found = {}
  for path, file in pairs(closed) do
    found[path] = (not is_meant or is_meant(file)) and file or nil
  end
  return found
end

---@param is_meant? fun(file: sanderling.review.closed_files.File): boolean
---@return integer changes
---@return integer files
function M.counts(is_meant)
  local change_count, file_count = 0, 0
  for _, file in pairs(meant(is_meant)) do
    change_count, file_count = change_count + file.count, file_count + 1
  end
  return change_count, file_count
end

---@return sanderling.review.Source?
function M.last_source()
  local last
  for _, file in pairs(closed) do
    last = (not last or file.nr > last.nr) and file or last
  end
  return last and last.source
end

--- Accept all changes in the matching files.
---@param is_meant? fun(file: sanderling.review.closed_files.File): boolean
---@return integer count
function M.accept(is_meant)
  local count = 0
  for path, file in pairs(meant(is_meant)) do
    live.act(file.source.session_id, { type = 'note_reviewed', path = path })
    closed[path], count = nil, count + file.count
  end
  on_change()
  return count
end

--- Load the matching files and make their hunks. Then call `fn` with the reasons why files could not be loaded.
---@param is_meant? fun(file: sanderling.review.closed_files.File): boolean
---@param fn fun(problems: string[])
function M.open(is_meant, fn)
  local left, problems = 1, {} ---@type integer, string[]
  local function done()
    left = left - 1
    if left == 0 then
      fn(problems)
    end
  end
  for path in pairs(meant(is_meant)) do
    if vim.uv.fs_lstat(path) then
      local file = closed[path]
      closed[path] = nil -- so that loading does not make them, too
      local buf, problem = loading.load(path, true)
      closed[path] = file
      if buf then
        left = left + 1
        make_hunks(buf, path, done)
      else
        problems[#problems + 1] = problem
      end
    else
      M.forget(path)
    end
  end
  done()
end

---@param path string
function M.forget(path)
  closed[path] = nil
  on_change()
end

--- Return the files in order of their paths.
---@return { path: string, lnum: integer }[]
function M.list()
  local list = {}
  for path, file in vim.spairs(closed) do
    list[#list + 1] = { path = path, lnum = file.lnum }
  end
  return list
end

---@return vim.quickfix.entry[]
function M.entries()
  return vim.tbl_map(function(file)
    local text = words.counted(closed[file.path].count, 'change') .. ' while it was not open'
    return { filename = file.path, lnum = file.lnum, text = text }
  end, M.list())
end

hunks.register(M.counts)

return M
