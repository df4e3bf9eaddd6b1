--- The entry for requests of Python to the editor. A module that handles requests creates its `answer` function here,
--- and Python calls it by the module's name. A request is answered at once, or later by a notification with its number.
local M = {}

local locked = require('sanderling.ui.locked')
local time = require('sanderling.ui.time')

local IS_TWICE = 'The question is already answered.'

---@class (exact) sanderling.host.door.Call
---@field deadline_ms number monotonic clock; a request handled later, such as after a blocking prompt, is dropped
---@field channel integer of the caller
---@field number integer of the request, for a late answer

---@class (exact) sanderling.host.door.Answer with one of these fields
---@field value? any
---@field error? string a sentence for the model
---@field waits_for? string what has to happen before the caller asks again
---@field is_late? boolean the deadline had passed
---@field comes_later? boolean the answer follows as a notification

---@class (exact) sanderling.host.door.Question has `answer` or `begin`
---@field answer? fun(...): any
---@field begin? fun(reply: fun(answer: sanderling.host.door.Answer), call: sanderling.host.door.Call, ...) calls `reply` once
---@field what_is_awaited? fun(...): string? what has to happen before it can be answered, if anything

---@param call sanderling.host.door.Call
---@return fun(answer: sanderling.host.door.Answer)
local function replier(call)
  local has_replied = false
  return function(answer)
    assert(not has_replied, IS_TWICE)
    has_replied = true
    pcall(vim.rpcnotify, call.channel, 'sanderling_answer', call.number, answer) -- the caller may be gone
  end
end

--- Return the `answer` function for `questions`.
---@param questions table<string, sanderling.host.door.Question> by name
---@return fun(call: sanderling.host.door.Call, name: string, ...: any): sanderling.host.door.Answer
function M.serve(questions)
  return function(call, name, ...)
    if time.now_ms() > call.deadline_ms then
      return { is_late = true }
    end
    local question = questions[name]
    local waits_for = question.what_is_awaited and question.what_is_awaited(...)
    if waits_for then
      return { waits_for = waits_for }
    end
    local ok, value
    if question.begin then
      ok, value = pcall(question.begin, replier(call), call, ...)
    else
      ok, value = pcall(question.answer, ...)
    end
    if ok then
      return question.begin and { comes_later = true } or { value = value }
    end
    waits_for = locked.reason(tostring(value))
    return waits_for and { waits_for = waits_for } or { error = tostring(value) }
  end
end

return M
