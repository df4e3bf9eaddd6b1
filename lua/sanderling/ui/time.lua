--- Measuring time, and waiting for a pause.
local M = {}

--- CPU time that Neovim has used, in seconds.
M.clock = os.clock

--- Return a monotonic time in milliseconds.
---@return number
function M.now_ms()
  return vim.uv.hrtime() / 1e6
end

--- Return a function that says whether Neovim has used `ms` of CPU time since: a limit for work whose amount depends on
--- other people's text, and a busy machine does not change the result.
---@param ms number
---@return fun(): boolean
function M.budget(ms)
  local ends = M.clock() + ms / 1000
  return function()
    return M.clock() > ends
  end
end

--- Return a function that calls `fn` with a key when it was not called with that key for `ms`.
---@param ms integer
---@param fn fun(key: integer)
---@return fun(key: integer)
function M.after_pause(ms, fn)
  local timers = {} ---@type table<integer, uv.uv_timer_t>
  return function(key)
    local timer = timers[key] or assert(vim.uv.new_timer())
    timers[key] = timer
    timer:start(ms, 0, function()
      -- Not in the scheduled function: before that runs, the timer can begin and end once more, and closing it twice fails.
      timers[key] = nil
      timer:close()
      vim.schedule(function()
        fn(key)
      end)
    end)
  end
end

return M
