--- Sessions of nvim-dap, and requests to their adapters. Sessions are neither started nor ended here.
local M = {}

local asking = require('sanderling.code.asking')
local debugging = require('sanderling.host.debugging')

local NONE = 'No debug session runs in the editor. The user can start one with nvim-dap.'
local UNKNOWN = 'There is no debug session %d. These run: %s.'
local NO_THREAD = 'Debug session %d has no thread %d: see `stack`.'
local STARTING = 'Debug session %d is still starting. Try again later.'
local RUNNING =
  'The program is running: it has no stack and no variables until it stops. `pause` stops it, a breakpoint too.'
local CLOSED = 'The debug session ended during the request.'
local LATE = 'The debugger did not answer within %d s (%s). It may still be at it.'
local MAX_THREADS = 50

--- Return the running sessions, with those that a session has started (as for a child process).
---@return table[]
function M.all()
  local dap = debugging.dap()
  local found, known = {}, {}
  local function add(session)
    if not known[session.id] then
      known[session.id] = true
      found[#found + 1] = session
    end
    for _, child in pairs(session.children or {}) do
      add(child)
    end
  end
  for _, session in pairs(dap and dap.sessions() or {}) do
    add(session)
  end
  table.sort(found, function(a, b)
    return a.id < b.id
  end)
  return found
end

--- Return the thread that has stopped, if any. nvim-dap remembers one; after a `pause` of only one thread it does not.
---@param session table
---@return integer?
function M.stopped_thread(session)
  if session.stopped_thread_id then
    return session.stopped_thread_id
  end
  local last = debugging.of(session.id).last
  local thread = last and session.threads[last.threadId]
  return thread and thread.stopped and thread.id or nil
end

---@param session table
---@return string
local function name_of(session)
  return tostring(session.config.name or '')
end

--- Return a session; for 0 the one that the user looks at, or another that has stopped if that one runs.
---@param id integer
---@return table
function M.find(id)
  local all = M.all()
  if #all == 0 then
    asking.fail(NONE)
  end
  if id ~= 0 then
    for _, session in ipairs(all) do
      if session.id == id then
        return session
      end
    end
    local names = vim.tbl_map(function(session)
      return ('%d (%s)'):format(session.id, name_of(session))
    end, all)
    asking.fail(UNKNOWN:format(id, table.concat(names, ', ')))
  end
  local focused = debugging.dap().session()
  if focused and M.stopped_thread(focused) then
    return focused
  end
  return vim.iter(all):find(M.stopped_thread) or focused or all[1]
end

--- Return the id of a stopped thread; for 0 the one that nvim-dap stays at.
---@param session table
---@param id integer
---@return integer
function M.thread(session, id)
  if not session.initialized then
    asking.fail(STARTING:format(session.id))
  end
  local stopped = M.stopped_thread(session)
  if id ~= 0 and id ~= stopped then
    local thread = session.threads[id]
    if not thread then
      asking.fail(NO_THREAD:format(session.id, id))
    end
    stopped = thread.stopped and id or nil
  end
  return stopped or asking.fail(RUNNING)
end

--- Run `begin`, whose callback gets the answer, and wait for it.
---@param session table
---@param name string
---@param begin fun(settle: fun(...: any))
---@return any ...
function M.await(session, name, begin)
  local is_late = asking.deadline()
  return asking.await(begin, function()
    if session.closed then
      return CLOSED
    elseif is_late() then
      return LATE:format(asking.LIMIT_MS / 1000, name)
    end
  end)
end

--- Send a request to the adapter, and return its answer or its refusal.
---@param session table
---@param command string
---@param args? table
---@return table? body
---@return string? problem
function M.try(session, command, args)
  local err, body = M.await(session, command, function(settle)
    session:request(command, args, settle)
  end)
  if err then
    return nil, tostring(err)
  end
  return body or {}
end

--- Send a request to the adapter; its refusal ends the model's request.
---@param session table
---@param command string
---@param args? table
---@return table body
function M.request(session, command, args)
  local body, problem = M.try(session, command, args)
  return body or asking.fail(('The debugger refused (%s): %s'):format(command, problem))
end

---@param session table
---@param thread integer?
---@return table
local function last_stop(session, thread)
  local stop = thread and debugging.of(session.id).last or {}
  return {
    reason = tostring(stop.reason or ''),
    description = tostring(stop.description or ''),
    text = tostring(stop.text or ''),
  }
end

--- Describe a session as `DebugSession` of src/sanderling/tools/debugger.py.
---@param session table
---@return table
function M.describe(session)
  local thread = M.stopped_thread(session)
  local threads = vim.tbl_values(session.threads or {})
  table.sort(threads, function(a, b)
    return a.id < b.id
  end)
  return {
    id = session.id,
    name = name_of(session),
    type = tostring(session.config.type or ''),
    is_ready = session.initialized == true,
    thread = thread,
    stop = last_stop(session, thread),
    threads = vim.tbl_map(function(each)
      local is_stopped = each.id == thread or (thread ~= nil and each.stopped == true)
      return { id = each.id, name = tostring(each.name or ''), is_stopped = is_stopped }
    end, vim.list_slice(threads, 1, MAX_THREADS)),
  }
end

return M
