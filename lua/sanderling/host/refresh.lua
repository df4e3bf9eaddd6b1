--- Send a request for completion data in the background, if the host is running. Completion shows what is known at
--- once: it neither waits for an answer nor starts the host.
local ask = require('sanderling.host.ask')
local host = require('sanderling.host')

---@param request sanderling.Request
---@param on_answer fun(result: table)
return function(request, on_answer)
  if host.is_running() then
    ask(request, on_answer, function() end)
  end
end
