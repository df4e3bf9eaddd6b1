--- Requests to language servers and debuggers. A request from Python runs here as a coroutine that waits for answers without blocking keys
--- and screen.
---
--- Every wait ends: a dead server is noticed, and a silent one has the time limit of the request.
local M = {}

local time = require('sanderling.ui.time')

M.LIMIT_MS = 7000 -- for all server requests of one call; Python waits for 10 s
local LOOK_MS = 50 -- between two checks, e.g. whether the server still runs

---@class (exact) sanderling.code.Problem
---@field words string a sentence for the model

---@type table<thread, number> deadlines of the running requests
local ends = {}

--- End the request with a sentence for the model.
---@param words string
function M.fail(words)
  error({ words = words }, 0)
end

--- Return a test for the time limit of the current request.
---@return fun(): boolean is_over
function M.deadline()
  local ends_at = ends[coroutine.running()]
  return function()
    return time.now_ms() > ends_at
  end
end

--- Run `fn` as a coroutine; `reply` gets its result, or its problem.
---@param reply fun(answer: sanderling.host.door.Answer)
---@param fn fun(): any
function M.run(reply, fn)
  local co = coroutine.create(function()
    local ok, value = pcall(fn)
    ends[coroutine.running()] = nil
    if ok then
      reply({ value = value })
    else
      reply({ error = type(value) == 'table' and value.words or tostring(value) })
    end
  end)
  ends[co] = time.now_ms() + M.LIMIT_MS
  assert(coroutine.resume(co))
end

--- Suspend until `begin` calls `settle`, or the polled `give_up` returns why waiting is useless.
---@param begin fun(settle: fun(...: any))
---@param give_up? fun(): string?
---@return any ...
function M.await(begin, give_up)
  local co = coroutine.running()
  local answer, is_waiting, why ---@type any[]?, boolean, string?
  local function go_on()
    if is_waiting then
      is_waiting = false
      assert(coroutine.resume(co))
    end
  end
  begin(function(...)
    if not answer and not why then
      answer = { n = select('#', ...), ... }
      go_on()
    end
  end)
  if not answer then
    local timer = give_up and assert(vim.uv.new_timer())
    local look = vim.schedule_wrap(function()
      why = not answer and not why and give_up() or why
      if why then
        go_on()
      end
    end)
    if timer then
      timer:start(LOOK_MS, LOOK_MS, look)
    end
    is_waiting = true
    coroutine.yield()
    if timer then
      timer:close()
    end
  end
  if why then
    M.fail(why)
  end
  return unpack(assert(answer), 1, answer.n)
end

--- Poll until `is_done`, for at most `limit_ms`.
---@param limit_ms number
---@param is_done fun(): boolean
function M.wait_until(limit_ms, is_done)
  local limit = time.now_ms() + limit_ms
  while not is_done() and time.now_ms() < limit do
    M.await(function(settle)
      vim.defer_fn(settle, LOOK_MS)
    end)
  end
end

--- Send a request to a server. Ends the model's request if the server does not answer.
---@param client vim.lsp.Client
---@param method string
---@param params table
---@param buf integer
---@return any result nil: none
---@return string? problem the server's message, if it refuses
function M.ask(client, method, params, buf)
  local id
  local is_late = M.deadline()
  local err, result = M.await(function(settle)
    local is_sent
    is_sent, id = client:request(method, params, settle, buf)
    if not is_sent then
      M.fail(('The language server %s has exited. Use grep.'):format(client.name))
    end
  end, function()
    if client:is_stopped() or not vim.lsp.get_client_by_id(client.id) then
      return ('The language server %s exited during the request. Use grep.'):format(client.name)
    elseif is_late() then
      pcall(client.cancel_request, client, id)
      local words = 'The language server %s did not answer within %d s. Use grep.'
      return words:format(client.name, M.LIMIT_MS / 1000)
    end
  end)
  if err then
    return nil, tostring(err.message or err)
  end
  return result ~= vim.NIL and result or nil
end

return M
