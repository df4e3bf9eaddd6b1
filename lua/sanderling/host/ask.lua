--- Asking Python for something, and waiting for the answer: the one way to do it. (Events come unasked.)
local attention = require('sanderling.ui.attention')
local host = require('sanderling.host')
local log = require('sanderling.host.log')

---@param request sanderling.Request
---@param on_answer fun(result: table, is_here: boolean) is_here: the person has not gone on to something else meanwhile
---@param on_error fun(sentence: string) called in its place when there is no answer
return function(request, on_answer, on_error)
  local is_here = attention.watch()
  host.request(request, function(result)
    vim.schedule(function() -- a question to the person would hold up what else has happened
      if result.error then
        log.guarded(on_error, result.error)
      else
        log.guarded(on_answer, result, is_here())
      end
    end)
  end)
end
