--- An answer of a plugin's function, which counts once, and only before a deadline.
local M = {}

--- Return the function that takes the answer. Of its calls, only the first is passed on, and none after the deadline.
---@param ms? integer the deadline; nil: none
---@param take fun(...) the answer
---@param late fun() called at the deadline, in a callback of libuv
---@return fun(...)
function M.answer(ms, take, late)
  local is_over = false
  local timer = ms and assert(vim.uv.new_timer())
  local function settling(fn)
    return function(...)
      if not is_over then
        is_over = true
        if timer then
          timer:close()
        end
        fn(...)
      end
    end
  end
  if timer then
    timer:start(ms, 0, settling(late))
  end
  return settling(take)
end

return M
