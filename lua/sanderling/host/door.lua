--- Python's questions to the editor. A module that knows answers has an `answer` of its own, made here of its questions; Python
--- names that module. An answer is given at once, or later: then it goes to Python under the number of the question.
local M = {}

local locked = require('sanderling.ui.locked')
local now_ms = require('sanderling.ui.now_ms')

local IS_TWICE = 'The question has its answer.'

---@class (exact) sanderling.host.door.Call
---@field deadline_ms number by the monotonic clock; what comes later, after a prompt, is no longer wanted
---@field channel integer who asks
---@field number integer of the question, for an answer that comes later

---@class (exact) sanderling.host.door.Answer one of them
---@field value? any
---@field error? string a sentence for the model
---@field waits_for? string what has to come first; ask again
---@field is_late? boolean the deadline had passed
---@field comes_later? boolean

---@class (exact) sanderling.host.door.Question with `answer` or `begin`
---@field answer? fun(...): any
---@field begin? fun(reply: fun(answer: sanderling.host.door.Answer), call: sanderling.host.door.Call, ...) calls `reply` once
---@field what_is_awaited? fun(...): string? what has to come before it can be answered

---@param call sanderling.host.door.Call
---@return fun(answer: sanderling.host.door.Answer)
local function replier(call)
  local has_replied = false
  return function(answer)
    assert(not has_replied, IS_TWICE)
    has_replied = true
    pcall(vim.rpcnotify, call.channel, 'sanderling_answer', call.number, answer) -- who asked may be gone
  end
end

--- The way in for `questions`.
---@param questions table<string, sanderling.host.door.Question> by name
---@return fun(call: sanderling.host.door.Call, name: string, ...: any): sanderling.host.door.Answer
function M.serve(questions)
  return function(call, name, ...)
    if now_ms() > call.deadline_ms then
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
