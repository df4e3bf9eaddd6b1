--- The error log: the last lines of the host's stderr, and internal errors of the Lua side. :checkhealth shows them.
local M = {}

local message = require('sanderling.ui.message')

local MAX_LINES = 200
local has_reported = false

---@type string[]
M.lines = {}

---@param line string
function M.keep(line)
  M.lines[#M.lines + 1] = line
  if #M.lines > MAX_LINES then
    table.remove(M.lines, 1)
  end
end

--- Log an internal error. The first one is also reported in one line. It must not stop the stream.
---@param err string
function M.note_defect(err)
  M.keep(err)
  if not has_reported then
    has_reported = true
    vim.schedule(function()
      local text = 'Sanderling: internal error. :Agent health shows it.'
      message.tell(text, vim.log.levels.ERROR)
    end)
  end
end

--- Call `fn` and log an error in it.
---@param fn function
---@return any result nil after an error
function M.guarded(fn, ...)
  local ok, result = xpcall(fn, debug.traceback, ...)
  if ok then
    return result
  end
  M.note_defect(result)
end

return M
