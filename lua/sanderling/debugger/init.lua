--- The debug sessions of nvim-dap for the model: requests from Python, about sessions that the user has started.
local M = {}

local api = vim.api
local asking = require('sanderling.code.asking')
local breakpoints = require('sanderling.debugger.breakpoints')
local debugging = require('sanderling.host.debugging')
local door = require('sanderling.host.door')
local find = require('sanderling.editing.find')
local sessions = require('sanderling.debugger.sessions')

local SHOW_MS = 1000 -- for nvim-dap to learn the frame
local MAX_VALUES = 100
local MAX_VALUE_BYTES = 2000
local MAX_RESULT_BYTES = 200000
local STALE = '#%d is not a value of the current stop: list the variables again.'
local NO_FRAME = 'Thread %d has no frame %d.'
local HAS_STOPPED = 'The program has stopped already: see `stack`.'
local NO_EXCEPTION = 'exception: type unknown' -- debugpy's answer at another stop; others refuse, as the protocol says
local NO_THREADS = 'The debugger names no thread that could be paused.'
local REQUESTS =
  { continue = 'continue', step_over = 'next', step_in = 'stepIn', step_out = 'stepOut' }

---@param value any
local function given(value)
  return value ~= vim.NIL and value or nil
end

---@param text any
---@param most integer bytes
---@return string
local function cut(text, most)
  text = tostring(text or '')
  return #text <= most and text
    or text:sub(1, most + vim.str_utf_start(text, most + 1) - 1) .. ' [cut]'
end

-- frames ---------------------------------------------------------------------------------------------------------------

---@param session table
---@param thread integer
---@param most integer
---@return table[] frames
---@return integer count as far as is known
local function frames_of(session, thread, most)
  local args = { threadId = thread, startFrame = 0, levels = most }
  local body = sessions.request(session, 'stackTrace', args)
  local frames = body.stackFrames or {}
  return vim.list_slice(frames, 1, most), math.max(body.totalFrames or 0, #frames)
end

--- Return the id of a frame, by its number from the innermost one; without a number, of the one that the user has selected.
---@param session table
---@param thread integer
---@param number integer?
---@return integer
local function frame_id(session, thread, number)
  local selected = session.current_frame
  if not number and selected and thread == sessions.stopped_thread(session) then
    return selected.id
  end
  local frame = frames_of(session, thread, (number or 0) + 1)[(number or 0) + 1]
  return frame and frame.id or asking.fail(NO_FRAME:format(thread, number or 0))
end

--- Return the exception of a thread that stopped before anything here noticed it.
---@param session table
---@param thread integer
---@return table? stop
local function exception_of(session, thread)
  if debugging.of(session.id).last or not session.capabilities.supportsExceptionInfoRequest then
    return nil
  end
  local info = sessions.try(session, 'exceptionInfo', { threadId = thread }) or {}
  local id = info.exceptionId or ''
  return id ~= ''
      and id ~= NO_EXCEPTION
      and { reason = 'exception', description = info.description or '', text = id }
    or nil
end

---@param id integer
---@param thread_id integer
---@param most integer
---@return table
local function stack(id, thread_id, most)
  local session = sessions.find(id)
  local others = vim.tbl_filter(function(each)
    return each.id ~= session.id
  end, sessions.all())
  local answer = {
    session = sessions.describe(session),
    others = vim.tbl_map(sessions.describe, others),
  }
  if thread_id == 0 and not answer.session.thread then
    return answer -- it runs
  end
  local thread = sessions.thread(session, thread_id)
  local frames, count = frames_of(session, thread, most)
  local selected = session.current_frame and session.current_frame.id
  answer.thread, answer.count = thread, count
  answer.session.stop = exception_of(session, thread) or answer.session.stop
  answer.frames = vim.tbl_map(function(frame)
    local source = frame.source or {}
    local is_file = source.path and (source.sourceReference or 0) == 0
    return {
      name = cut(frame.name, MAX_VALUE_BYTES),
      line = frame.line or 0,
      path = is_file and source.path or '',
      is_selected = frame.id == selected,
    }
  end, frames)
  return answer
end

-- values ---------------------------------------------------------------------------------------------------------------

--- Remember that the model gets a reference. Adapters use the same numbers again after the next stop.
---@param session table
---@param reference integer?
---@return integer
local function give(session, reference)
  debugging.of(session.id).references[reference or 0] = true
  return reference or 0
end

--- End the request if a reference is not one of the current stop.
---@param session table
---@param reference integer
local function check_reference(session, reference)
  sessions.thread(session, 0)
  if not debugging.of(session.id).references[reference] then
    asking.fail(STALE:format(reference))
  end
end

---@param session table
---@param name string
---@param value table of the protocol; the text is its `value` or `result`
---@param most integer bytes
---@return table
local function described(session, name, value, most)
  return {
    name = cut(name, MAX_VALUE_BYTES),
    value = cut(value.value or value.result, most),
    type = cut(value.type, MAX_VALUE_BYTES),
    reference = give(session, value.variablesReference),
  }
end

---@param session table
---@param reference integer
---@param name string
---@return table
local function parts(session, reference, name)
  local body = sessions.request(session, 'variables', { variablesReference = reference })
  local all = body.variables or {}
  return {
    name = name,
    count = #all,
    values = vim.tbl_map(function(each)
      return described(session, each.name, each, MAX_VALUE_BYTES)
    end, vim.list_slice(all, 1, MAX_VALUES)),
  }
end

---@param session table
---@param thread_id integer
---@param number integer?
---@return table[]
local function scopes(session, thread_id, number)
  local frame = frame_id(session, sessions.thread(session, thread_id), number)
  local body = sessions.request(session, 'scopes', { frameId = frame })
  return vim.tbl_map(function(scope)
    if scope.expensive or scope.presentationHint == 'registers' then
      return { name = scope.name, reference = give(session, scope.variablesReference) }
    end
    return parts(session, scope.variablesReference, scope.name)
  end, body.scopes or {})
end

-- continuing -----------------------------------------------------------------------------------------------------------

---@param session table
---@param thread_id integer
local function pause(session, thread_id)
  if sessions.stopped_thread(session) then
    asking.fail(HAS_STOPPED)
  elseif thread_id == 0 then
    local threads = sessions.request(session, 'threads').threads or {}
    thread_id = threads[1] and threads[1].id or asking.fail(NO_THREADS)
  end
  sessions.request(session, 'pause', { threadId = thread_id })
end

--- Continue a thread. nvim-dap's own functions would repeat a step by the count of the user's last command, and show a
--- menu if several threads have stopped.
---@param session table
---@param thread_id integer
---@param command string
local function continue(session, thread_id, command)
  local thread = sessions.thread(session, thread_id)
  local frame = session.current_frame
  -- The adapter sends no such event about its answer to a request.
  session:event_continued({ threadId = thread, allThreadsContinued = false })
  local granularity = debugging.dap().defaults[session.config.type].stepping_granularity
  local args = { threadId = thread, granularity = command ~= 'continue' and granularity or nil }
  local _, problem = sessions.try(session, command, args)
  if problem then
    session.stopped_thread_id, session.current_frame = thread, frame
    if session.threads[thread] then
      session.threads[thread].stopped = true
    end
    asking.fail(('The debugger refused (%s): %s'):format(command, problem))
  end
end

--- Show where the program has stopped in the windows that show the file, without moving the user.
---@param session table
local function show(session)
  asking.wait_until(SHOW_MS, function()
    return session.current_frame ~= nil
  end)
  local frame = session.current_frame
  local path = frame and frame.source and frame.source.path
  local stat = path and vim.uv.fs_stat(path)
  local buf = stat and find.buffer_of(path, stat.dev, stat.ino, '')
  if not buf then
    return
  end
  vim.fn.sign_unplace(session.sign_group)
  local sign = { lnum = frame.line, priority = 22 }
  pcall(vim.fn.sign_place, 0, session.sign_group, 'DapStopped', buf, sign)
  for _, win in ipairs(vim.fn.win_findbuf(buf)) do
    if win ~= api.nvim_get_current_win() then
      pcall(api.nvim_win_set_cursor, win, { frame.line, 0 })
    end
  end
end

---@type table<integer, true?> numbers of calls that wait for a stop
local waiting = {}

--- The host no longer waits for a stop.
---@param number integer
function M.cancel(number)
  waiting[number] = nil
end

--- Wait until the program has stopped more often than `stops`, has ended, or the call `number` is cancelled.
---@param number integer
---@param id integer
---@param stops integer
---@return table as `Waited` of src/sanderling/tools/debugger.py
local function wait(number, id, stops)
  local session ---@type table?
  local function has_stopped()
    return session and debugging.of(id).stops > stops and sessions.stopped_thread(session) ~= nil
  end
  waiting[number] = true
  asking.wait_until(math.huge, function()
    session = vim.iter(sessions.all()):find(function(each)
      return each.id == id
    end)
    return not waiting[number] or not session or has_stopped()
  end)
  local about = debugging.of(id)
  about.is_quiet = nil
  if not session then
    return { state = 'ended', exit_code = about.exit_code }
  elseif has_stopped() then
    show(session)
    return { state = 'stopped' }
  end
  return { state = 'running' }
end

-- requests -------------------------------------------------------------------------------------------------------------

--- Return a request that waits for a debugger.
---@param fn fun(...): any
---@return sanderling.host.door.Question
local function question(fn)
  return {
    begin = function(reply, _, ...)
      local args = vim.tbl_map(given, { ... })
      asking.run(reply, function()
        return fn(unpack(args, 1, 4))
      end)
    end,
  }
end

--- The entry point for requests that need an answer.
M.answer = door.serve({
  stack = question(stack),
  variables = question(function(id, thread_id, number)
    return scopes(sessions.find(id), thread_id, number)
  end),
  parts = question(function(id, reference)
    local session = sessions.find(id)
    check_reference(session, reference)
    return parts(session, reference, '')
  end),
  evaluate = question(function(id, thread_id, number, expression)
    local session = sessions.find(id)
    local frame = frame_id(session, sessions.thread(session, thread_id), number)
    local args = { expression = expression, frameId = frame, context = 'repl' }
    local body = sessions.request(session, 'evaluate', args)
    return described(session, '', body, MAX_RESULT_BYTES)
  end),
  control = question(function(id, thread_id, control)
    local session = sessions.find(id)
    local about = debugging.of(session.id)
    local stops = about.stops
    about.is_quiet = true
    local ok, problem
    if control == 'pause' then
      ok, problem = pcall(pause, session, thread_id)
    else
      ok, problem = pcall(continue, session, thread_id, REQUESTS[control])
    end
    if not ok then
      about.is_quiet = nil
      error(problem, 0)
    end
    return { session.id, stops }
  end),
  wait = {
    begin = function(reply, call, number, ...)
      local args = { ... }
      reply({ value = true })
      asking.run(function(answer)
        if waiting[number] then
          waiting[number] = nil
          pcall(vim.rpcnotify, call.channel, 'sanderling_answer', number, assert(answer.value))
        end
      end, function()
        return wait(number, unpack(args))
      end)
    end,
  },
  check = question(function(id)
    return sessions.find(id).id
  end),
  breakpoints = question(breakpoints.list),
  at = question(breakpoints.at),
  set = question(breakpoints.set),
  clear = question(breakpoints.clear),
})

return M
