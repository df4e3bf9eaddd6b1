--- Asking Python for what is completed: in the background, and only where its process runs. Completing shows what is known at once:
--- nobody waits for an answer while they type, and no process starts by that.
local ask = require('sanderling.host.ask')
local host = require('sanderling.host')

---@param request sanderling.Request
---@param on_answer fun(result: table)
return function(request, on_answer)
  if host.is_running() then
    ask(request, on_answer, function() end)
  end
end
