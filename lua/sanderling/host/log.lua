--- The log of what has gone wrong: the last lines of the host's stderr, and defects of the screen. :checkhealth shows them.
local M = {}

local message = require('sanderling.ui.message')

local MAX_LINES = 200
local has_told = false

---@type string[]
M.lines = {}

---@param line string
function M.keep(line)
  M.lines[#M.lines + 1] = line
  if #M.lines > MAX_LINES then
    table.remove(M.lines, 1)
  end
end

--- A defect of the screen is written down and told once, in one line; it must not stop the stream.
---@param err string
function M.note_defect(err)
  M.keep(err)
  if not has_told then
    has_told = true
    vim.schedule(function()
      local text = 'Sanderling: something went wrong here; :AgentHealth shows it'
      message.tell(text, vim.log.levels.ERROR)
    end)
  end
end

--- Call `fn`; an error in it is a defect.
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
