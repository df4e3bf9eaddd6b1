--- Calls of tools and callbacks in Lua, for the host. An error in one fails only that call.
local M = {}

local before = require('sanderling.extend.before')
local door = require('sanderling.host.door')
local log = require('sanderling.host.log')
local once = require('sanderling.extend.once')
local registry = require('sanderling.extend.registry')
local sessions = require('sanderling.extend.session')
local time = require('sanderling.ui.time')
local tools = require('sanderling.extend.tool')
local words = require('sanderling.ui.words')

local MAX_RESULT_BYTES = 10 * 1024 * 1024
local LATE = 'it did not answer within %g s'

---@class (exact) sanderling.extend.calls.Call
---@field number integer the host's
---@field channel integer the host's
---@field on_cancel fun()[]
---@field is_cancelled boolean

---@type table<integer, sanderling.extend.calls.Call> calls without an answer, by number
local running = {}

---@param call sanderling.extend.calls.Call
---@return boolean
local function is_running(call)
  return running[call.number] == call
end

--- Answer a call, unless it was answered or cancelled.
---@param call sanderling.extend.calls.Call
---@param answer table
local function finish(call, answer)
  if is_running(call) then
    running[call.number] = nil
    pcall(vim.rpcnotify, call.channel, 'sanderling_answer', call.number, answer) -- the host may be gone
  end
end

--- Call `fn` in the main loop: at once, unless the caller is a callback of libuv, which may not use most of Neovim.
---@param fn fun()
local function in_main_loop(fn)
  if vim.in_fast_event() then
    vim.schedule(fn)
  else
    fn()
  end
end

--- Call `fn`, keeping the traceback of an error in the log.
---@param fn function
---@return boolean ok
---@return any ... the results, or the error in one line
local function guarded(fn, ...)
  return xpcall(fn, function(err)
    log.keep(debug.traceback(tostring(err), 2))
    return registry.first_line(err)
  end, ...)
end

---@param facts { session: string, project: string }
---@return sanderling.CallContext
local function context(facts)
  return { session = sessions.of(facts.session), project = facts.project }
end

-- tools -----------------------------------------------------------------------------------------------------------------

--- Return the result of a tool as text.
---@param result any
---@return table answer
local function answer_of(result)
  local text
  if result == nil or result == vim.NIL then
    text = ''
  elseif type(result) == 'table' then
    local ok, encoded = pcall(vim.json.encode, result)
    if not ok then
      return { error = 'its result has a value that JSON does not have' }
    end
    text = encoded
  else
    text = tostring(result)
  end
  if #text > MAX_RESULT_BYTES then
    return { error = ('its result has more than %d bytes'):format(MAX_RESULT_BYTES) }
  end
  return { value = text }
end

---@param call sanderling.extend.calls.Call
---@param name string
---@param input table
---@param facts { session: string, project: string }
local function run_tool(call, name, input, facts)
  local tool = tools.find(name)
  if not tool then
    return finish(call, { error = 'it was removed' })
  end
  local ctx = context(facts) --[[@as sanderling.ToolContext]]
  function ctx.on_cancel(fn)
    local function run()
      registry.call(tool, ("on_cancel of the tool '%s'"):format(name), fn)
    end
    if call.is_cancelled then -- what the tool has begun since must end, too
      in_main_loop(run)
    else
      table.insert(call.on_cancel, run)
    end
  end
  function ctx.progress(text)
    in_main_loop(function()
      if is_running(call) then
        pcall(vim.rpcnotify, call.channel, 'sanderling_show', call.number, tostring(text))
      end
    end)
  end
  local function done(result, err)
    in_main_loop(function()
      local is_error = err ~= nil and err ~= vim.NIL
      finish(call, is_error and { error = tostring(err) } or answer_of(result))
    end)
  end
  local ok, err = guarded(tool.run, input, ctx, done)
  if not ok then
    finish(call, { error = err })
  end
end

-- callbacks ---------------------------------------------------------------------------------------------------------------

---@param value any
---@param more any
---@return table
local function decision(value, more)
  return { decision = value, reason = type(more) == 'string' and more or nil }
end

--- Return whether a value can be the input of a tool call: an object of JSON.
---@param input any
---@return boolean
local function is_input(input)
  if type(input) ~= 'table' or not pcall(vim.json.encode, input) then
    return false -- a function in it, for example
  end
  for key in pairs(input) do
    if type(key) ~= 'string' then
      return false
    end
  end
  return true
end

--- The answers that callbacks may give, by the point. Each function returns nil for anything else.
---@type table<sanderling.BeforePoint, fun(value: any, more: any, subject: any): table?>
local meanings = {
  prompt = function(value)
    return type(value) == 'string' and words.trimmed(value) ~= '' and { text = value } or nil
  end,
  compact = function(value)
    return type(value) == 'string' and { text = value } or nil
  end,
  tool = function(value, more, subject)
    if value == 'ask' or value == 'allow' then
      return decision(value, more)
    elseif type(value) == 'table' then
      local is_decided = more == 'ask' or more == 'allow'
      local input = value
      if value == subject then
        input = value.input
      end
      if not is_input(input) then
        return
      end
      input = next(input) == nil and vim.empty_dict() or input
      return { input = input, decision = is_decided and more or nil }
    end
  end,
}

local EXPECTED = {
  prompt = 'the prompt, or false and a reason',
  compact = 'the focus, or false and a reason',
  tool = "the input, 'ask', 'allow', or false and a reason",
}

---@param point sanderling.BeforePoint
---@param subject any
---@param value any
---@param more any
---@return table answer
local function meaning(point, subject, value, more)
  if value == nil or value == true then
    return {}
  elseif value == false then
    return decision('deny', more)
  end
  return meanings[point](value, more, subject)
    or {
      failure = ('it returned %s; expected: %s'):format(
        vim.inspect(value):sub(1, 60),
        EXPECTED[point]
      ),
    }
end

--- Run one callback.
---@param callback sanderling.extend.before.Callback
---@param point sanderling.BeforePoint
---@param subject any
---@param facts { session: string, project: string }
---@param on_answer fun(answer: table) called once
local function run_callback(callback, point, subject, facts, on_answer)
  local own = vim.deepcopy(subject)
  local started_ms = time.now_ms()
  local function pass_on(said)
    said.owner = callback.origin
    on_answer(said)
  end
  local function late()
    pass_on({ failure = LATE:format(callback.timeout_ms / 1000) })
  end
  local deadline_ms = callback.is_async and callback.timeout_ms or nil
  local answer = once.answer(deadline_ms, pass_on, vim.schedule_wrap(late))
  local function take(value, more)
    if time.now_ms() - started_ms > callback.timeout_ms then -- it kept Neovim busy
      answer({ failure = LATE:format(callback.timeout_ms / 1000) })
    else
      answer(meaning(point, own, value, more))
    end
  end
  local function done(value, more)
    in_main_loop(function()
      take(value, more)
    end)
  end
  local ok, value, more =
    guarded(callback.fn, own, context(facts), callback.is_async and done or nil)
  if not ok then
    answer({ failure = value })
  elseif not callback.is_async then
    take(value, more)
  end
end

--- Run the callbacks one after the other, each with what the one before it has made of `subject`.
---@param call sanderling.extend.calls.Call
---@param point sanderling.BeforePoint
---@param subject any
---@param facts { session: string, project: string }
local function run_callbacks(call, point, subject, facts)
  local callbacks = before.list(point)
  local answers = {}
  local function step(index, current)
    local callback = callbacks[index]
    if not callback then
      return finish(call, { answers = answers })
    end
    run_callback(callback, point, current, facts, function(answer)
      table.insert(answers, answer)
      if not is_running(call) then
        return -- cancelled
      elseif answer.decision == 'deny' then
        return finish(call, { answers = answers })
      end
      if answer.input then
        current = { name = current.name, input = answer.input }
      end
      step(index + 1, answer.text or current)
    end)
  end
  step(1, subject)
end

-- the host ------------------------------------------------------------------------------------------------------------

--- Return a request that begins a call, whose answer comes under a number of its own.
---@param run fun(call: sanderling.extend.calls.Call, ...)
---@return sanderling.host.door.Question
local function beginning(run)
  return {
    begin = function(reply, asked, number, ...)
      ---@type sanderling.extend.calls.Call
      local call =
        { number = number, channel = asked.channel, on_cancel = {}, is_cancelled = false }
      running[number] = call
      local args = { n = select('#', ...), ... }
      vim.schedule(function() -- it may wait for a key
        if is_running(call) then
          run(call, unpack(args, 1, args.n))
        end
      end)
      reply({ value = true })
    end,
  }
end

--- The entry point for requests that need an answer.
M.answer = door.serve({
  tool = beginning(run_tool),
  callbacks = beginning(run_callbacks),
})

--- The host no longer waits for a call.
---@param number integer
function M.cancel(number)
  local call = running[number]
  if not call then
    return
  end
  running[number], call.is_cancelled = nil, true
  for _, fn in ipairs(call.on_cancel) do
    fn()
  end
end

return M
