--- Retries of changes that Neovim refuses while text or windows are locked, for example by a pending mapping.
local M = {}

local RETRY_MS = 20

---@param err string
---@return string? what it waits for; nil: it failed for another reason
function M.reason(err)
  if err:find('E565:', 1, true) or err:find('E523:', 1, true) then
    return 'a key for a mapping'
  elseif err:find('E11:', 1, true) then
    return 'the end of the command-line window'
  end
end

--- Ask Neovim, without changing anything.
---@return string? what must happen before text can be changed
function M.text_waits_for()
  -- There is no buffer -1. But where text is locked, Neovim says that first.
  local _, err = pcall(vim.api.nvim_buf_set_lines, -1, 0, 0, true, {})
  return M.reason(tostring(err))
end

--- Call `fn` now, or as soon as Neovim allows it.
---@param fn fun()
---@param on_error fun(err: string) it failed for another reason
---@param is_possible? fun(): boolean default: text can be changed
function M.retry(fn, on_error, is_possible)
  local ok, err = false, nil
  if is_possible and is_possible() or not is_possible and not M.text_waits_for() then
    ok, err = pcall(fn)
  end
  if not ok and (not err or M.reason(tostring(err))) then
    vim.defer_fn(function()
      M.retry(fn, on_error, is_possible)
    end, RETRY_MS)
  elseif not ok then
    on_error(tostring(err))
  end
end

return M
