--- Breakpoints, which nvim-dap keeps as signs of buffers, for all sessions.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local find = require('sanderling.editing.find')
local loading = require('sanderling.access.loading')
local sessions = require('sanderling.debugger.sessions')

local MAX = 100
local UNLIKE = '%s is a different file in the editor and in the sandbox.'
local TOO_FAR = '%s has %d lines.'
local NOT_THERE = 'There is no breakpoint there.'
local UNCONDITIONAL = 'The debugger of session %d does not support conditions.'

---@return table nvim-dap's module
local function placed()
  sessions.find(0) -- or it is not loaded
  return require('dap.breakpoints')
end

--- Return the buffer of a file. If it is not open, load it, which fires none of the user's autocommands.
---@param file sanderling.code.File
---@return integer
local function buffer_of(file)
  local path, device, inode, place = file.path, file.device, file.inode, file.place
  local buf = find.buffer_of(path, device, inode, place)
  if buf then
    return buf
  end
  local real = vim.uv.fs_realpath(path)
  if not real or not find.names_file(real, device, inode, place) then
    asking.fail(UNLIKE:format(vim.fs.basename(path)))
  end
  local loaded, problem = loading.load(assert(real), true)
  return loaded or asking.fail(assert(problem))
end

--- Describe a breakpoint as `Breakpoint` of src/sanderling/tools/debugger.py.
---@param breakpoint table
---@return table
local function described(breakpoint)
  local state = breakpoint.state
  return {
    path = api.nvim_buf_get_name(breakpoint.buf),
    line = breakpoint.line,
    condition = breakpoint.condition or '',
    hit_condition = breakpoint.hitCondition or '',
    log_message = breakpoint.logMessage or '',
    is_verified = state and state.verified == true,
    message = state and state.message or '',
  }
end

---@return table[]
function M.list()
  local found = {}
  for _, in_buffer in pairs(placed().get()) do
    vim.list_extend(found, vim.tbl_map(described, in_buffer))
  end
  table.sort(found, function(a, b)
    return a.path == b.path and a.line < b.line or a.path < b.path
  end)
  return vim.list_slice(found, 1, MAX)
end

--- Send the breakpoints of a buffer to all sessions; a session that starts asks for them itself.
---@param buf integer
---@param lnum? integer
---@return table? answer a session's, about the breakpoint of this line
local function send(buf, lnum)
  local answer
  for _, session in ipairs(sessions.all()) do
    if session.initialized and not session.closed then
      local in_buffer = placed().get(buf)
      local listeners = require('dap').listeners.before.setBreakpoints
      local function listen(of, _, body, request)
        if of ~= session or not request or #request.breakpoints ~= #(body or {}).breakpoints then
          return
        end
        for i, each in ipairs(request.breakpoints) do
          if each.line == lnum and not (answer and answer.verified) then
            answer = body.breakpoints[i]
          end
        end
      end
      listeners[listen] = listen
      local ok, problem = pcall(sessions.await, session, 'setBreakpoints', function(settle)
        session:set_breakpoints(in_buffer, settle)
      end)
      listeners[listen] = nil
      if not ok then
        error(problem, 0)
      end
    end
  end
  return answer
end

---@param file sanderling.code.File
---@param lnum integer
---@param condition string
---@return table
function M.set(file, lnum, condition)
  local list = placed()
  for _, session in ipairs(sessions.all()) do
    local is_able = session.capabilities.supportsConditionalBreakpoints
    if condition ~= '' and session.initialized and not is_able then
      asking.fail(UNCONDITIONAL:format(session.id))
    end
  end
  local buf = buffer_of(file)
  local count = api.nvim_buf_line_count(buf)
  if lnum > count then
    asking.fail(TOO_FAR:format(vim.fs.basename(file.path), count))
  end
  list.set({ condition = condition ~= '' and condition or nil }, buf, lnum)
  local made = described({ buf = buf, line = lnum, condition = condition })
  local answer = send(buf, lnum)
  if answer then
    made.line = answer.line or lnum
    made.is_verified = answer.verified == true
    made.message = tostring(answer.message or '')
  end
  return made
end

--- Return the breakpoint of a line, or all of a file.
---@param file sanderling.code.File
---@param lnum integer 0: all
---@return table[]
local function found_at(file, lnum)
  local list = placed()
  local buf = find.buffer_of(file.path, file.device, file.inode, file.place)
  return vim.tbl_filter(function(each)
    return lnum == 0 or each.line == lnum
  end, buf and list.get(buf)[buf] or {})
end

---@param file sanderling.code.File
---@param lnum integer 0: all of the file
---@return table[]
function M.at(file, lnum)
  return vim.tbl_map(described, found_at(file, lnum))
end

--- Remove the breakpoint of a line, or all of a file.
---@param file sanderling.code.File
---@param lnum integer 0: all
---@return integer count
function M.clear(file, lnum)
  local found = found_at(file, lnum)
  for _, each in ipairs(found) do
    placed().remove(each.buf, each.line)
  end
  if #found == 0 then
    asking.fail(NOT_THERE)
  end
  send(found[1].buf)
  return #found
end

return M
