--- Helpers for building rows of the verb table.
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

--- A verb that acts on a turn by the function of the same name in `screen`.
---@param name string
---@param desc string
---@param screen table
---@param has_command? boolean
---@return sanderling.verbs.Verb
function M.on_turn(name, desc, screen, has_command)
  return {
    name = name,
    desc = desc,
    forms = 'ex slash',
    has_command = has_command,
    args = '* turn',
    complete = screen.complete,
    on_session = true,
    only_looks = true,
    run = screen[name],
  }
end

return M
