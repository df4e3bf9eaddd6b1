--- Code intelligence for the model: requests from Python to the user's running language servers.
---
--- No server is started for the model: it would run outside the sandbox, under the project's configuration. Running servers only get
--- files below their current roots.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local busy = require('sanderling.editing.busy')
local clients = require('sanderling.code.clients')
local door = require('sanderling.host.door')
local find = require('sanderling.editing.find')
local hidden = require('sanderling.editing.hidden')
local lazy = require('sanderling.ui.lazy')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local servers = require('sanderling.editing.servers')

local diagnostics = lazy('sanderling.code.diagnostics')
local nav = lazy('sanderling.code.nav')
local refactor = lazy('sanderling.code.refactor')

---@class (exact) sanderling.code.File opened by the sandbox: see editing/find.lua
---@field path string
---@field device integer
---@field inode integer
---@field place string

--- Return the buffer of a file, attached to the servers. If it is not open, load it.
---@param file sanderling.code.File
---@return integer buf
---@return boolean is_new
local function buffer_of(file)
  local path, device, inode, place = file.path, file.device, file.inode, file.place
  local buf = find.buffer_of(path, device, inode, place)
  if buf then
    if loading.is_quiet(buf) then -- the user has not entered it
      loading.set_filetype(buf)
      clients.attach(buf)
    end
    return buf, false
  end
  local real, name = vim.uv.fs_realpath(path), vim.fs.basename(path)
  if not real or not find.names_file(real, device, inode, place) then
    asking.fail(('%s is a different file in the editor and in the sandbox.'):format(name))
  end
  if #clients.running() == 0 then
    asking.fail('No language server runs in the editor. Use grep.')
  end
  local loaded, problem = hidden.load(assert(real))
  if not loaded then
    asking.fail(assert(problem))
  elseif not find.names_file(api.nvim_buf_get_name(assert(loaded)), device, inode, place) then
    hidden.drop(assert(loaded))
    asking.fail(('%s has just changed. Try again.'):format(name))
  end
  clients.attach(assert(loaded))
  return assert(loaded), true
end

--- Return a request about a file, which waits for servers.
---@param fn fun(buf: integer, is_new: boolean, ...): any
---@return sanderling.host.door.Question
local function about_file(fn)
  return {
    begin = function(reply, _, file, ...)
      local args = { n = select('#', ...), ... }
      asking.run(reply, function()
        local buf, is_new = buffer_of(file)
        return fn(buf, is_new, unpack(args, 1, args.n))
      end)
    end,
    what_is_awaited = function()
      return busy.what_is_awaited(0)
    end,
  }
end

--- Return a request about the project.
---@param fn fun(...): any
---@return sanderling.host.door.Question
local function about_project(fn)
  return {
    begin = function(reply, _, ...)
      local args = { n = select('#', ...), ... }
      asking.run(reply, function()
        return fn(unpack(args, 1, args.n))
      end)
    end,
  }
end

---@param value any
local function given(value)
  return value ~= vim.NIL and value or nil
end

--- The entry point for requests that need an answer.
M.answer = door.serve({
  navigate = about_file(function(buf, _, op, symbol, lnum)
    return nav.navigate(buf, op, symbol, given(lnum))
  end),
  symbols = about_project(function(project, symbol, is_like)
    return nav.symbols(project, symbol, is_like)
  end),
  rename = about_file(function(buf, _, symbol, lnum, new)
    return refactor.rename(buf, symbol, given(lnum), new)
  end),
  action = about_file(function(buf, _, symbol, lnum, title)
    return refactor.action(buf, symbol, lnum, title)
  end),
  move = about_file(function(buf, _, old, new)
    return refactor.move(buf, old, new)
  end),
  diagnostics = about_file(function(buf, is_new)
    return diagnostics.said(buf, is_new)
  end),
  all_diagnostics = about_project(function()
    return diagnostics.said(nil, false)
  end),
})

--- The agent has moved a file: show it in the windows that showed the old one.
---@param old string
---@param new string
function M.moved(old, new)
  local buf = vim.iter(api.nvim_list_bufs()):find(function(each)
    return api.nvim_buf_get_name(each) == old
  end) or -1
  busy.when_possible(buf, function()
    if vim.bo[buf].modified then
      return message.tell(
        ('%s was moved to %s; your unsaved changes stay in the old buffer.'):format(old, new)
      )
    end
    local fresh, problem = loading.load(new, vim.bo[buf].buflisted)
    if not fresh then
      return message.tell(assert(problem), vim.log.levels.WARN)
    end
    for _, win in ipairs(vim.fn.win_findbuf(buf)) do
      local view = api.nvim_win_call(win, vim.fn.winsaveview)
      pcall(loading.show, win, fresh)
      api.nvim_win_call(win, function()
        vim.fn.winrestview(view)
      end)
    end
    pcall(api.nvim_buf_delete, buf, {})
  end)
  servers.tell({ { old, 'deleted' }, { new, 'created' } })
  refactor.moved(old, new)
end

return M
