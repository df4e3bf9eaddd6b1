--- Running programs for their output: a key waits for it, a background function is suspended.
local M = {}

local WAIT_MS = 3000

---@type table<thread, boolean> functions that may be suspended until a program ends
local awaiting = setmetatable({}, { __mode = 'k' })

--- Run `fn`, which may take long, without blocking keys and screen.
---@param fn fun()
function M.in_background(fn)
  local co = coroutine.create(fn)
  awaiting[co] = true
  assert(coroutine.resume(co))
end

--- Suspend the background function until `begin` calls `settle`, and return its value. Elsewhere return false.
---@param begin fun(settle: fun(value: any)): boolean false: it could not begin
---@return boolean is_awaited
---@return any value
function M.await(begin)
  local co = coroutine.running()
  if not co or not awaiting[co] then
    return false, nil
  end
  local function settle(value)
    vim.schedule(function()
      assert(coroutine.resume(co, value))
    end)
  end
  return true, begin(settle) and coroutine.yield() or nil
end

--- Return the result of the program that `start` starts; nil if it cannot be started or takes too long.
---@param start fun(on_exit?: fun(result: vim.SystemCompleted)): vim.SystemObj?
---@return vim.SystemCompleted?
function M.result(start)
  local is_awaited, result = M.await(function(settle)
    return start(settle) ~= nil
  end)
  if is_awaited then
    return result
  end
  local process = start()
  return process and process:wait(WAIT_MS)
end

return M
