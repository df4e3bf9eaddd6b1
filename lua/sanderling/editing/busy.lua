--- Times when Neovim cannot be changed: what it waits for, and calls that are postponed until then.
local M = {}

local api = vim.api
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')

---@class (exact) sanderling.editing.Wait
---@field modes string pattern
---@field is_for string what it waits for
---@field only_there? boolean only for the buffer the user types in

---@type sanderling.editing.Wait[]
local WAITS = {
  { modes = '^no', is_for = 'the motion of an operator' },
  { modes = '^r', is_for = 'the answer to a prompt' },
  { modes = '^!', is_for = 'a shell command' },
  -- The completion remembers lines by number: accepting a match would delete lines in between.
  { modes = '^[iR]v?[cx]', is_for = 'the choice of a completion', only_there = true },
}

--- Return what must happen before the buffer can be changed.
---@param buf integer
---@return string?
function M.what_is_awaited(buf)
  local mode = api.nvim_get_mode().mode
  for _, wait in ipairs(WAITS) do
    if mode:find(wait.modes) and not (wait.only_there and api.nvim_get_current_buf() ~= buf) then
      return wait.is_for
    end
  end
  return locked.text_waits_for()
end

--- Show `text` in one line, which cannot become a hit-enter prompt.
---@param text string
function M.notify(text)
  local line = ('Sanderling: ' .. text):gsub('%c+', ' ')
  vim.schedule(function()
    message.tell(line, vim.log.levels.WARN)
  end)
end

--- Call `fn` now, or as soon as it is possible, unless the buffer is unloaded first.
---@param buf integer
---@param fn fun(buf: integer)
---@param is_possible? fun(): boolean
function M.when_possible(buf, fn, is_possible)
  local function is_gone()
    return not api.nvim_buf_is_loaded(buf)
  end
  locked.retry(
    function()
      if not is_gone() then
        fn(buf)
      end
    end,
    M.notify,
    function()
      return is_gone() or not M.what_is_awaited(buf) and (not is_possible or is_possible())
    end
  )
end

return M
