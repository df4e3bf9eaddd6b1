--- Send a request to the host and handle its answer. All requests with one answer go through this function.
local attention = require('sanderling.ui.attention')
local host = require('sanderling.host')
local log = require('sanderling.host.log')

---@param request sanderling.Request
---@param on_answer fun(result: table, is_here: boolean) is_here: the user has not moved on meanwhile
---@param on_error fun(sentence: string) called instead if the request fails
return function(request, on_answer, on_error)
  local is_here = attention.watch()
  host.request(request, function(result)
    vim.schedule(function() -- a question to the user would block other events
      if result.error then
        log.guarded(on_error, result.error)
      else
        log.guarded(on_answer, result, is_here())
      end
    end)
  end)
end
