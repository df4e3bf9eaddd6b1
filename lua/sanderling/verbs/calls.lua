--- The functions that verbs are made with, in their table.
local M = {}

---@param value any
---@return fun(): any
function M.always(value)
  return function()
    return value
  end
end

---@param text string
---@return string?
function M.unless_empty(text)
  return text ~= '' and text or nil
end

---@param fn fun(args: string)
function M.with_args(fn)
  return function(call)
    fn(call.args)
  end
end

---@param fn fun(session: sanderling.chat.session.Session)
function M.with_session(fn)
  return function(call)
    fn(call.session)
  end
end

return M
