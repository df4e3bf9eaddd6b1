--- Words on the screen: numbers, keys, lines that fit.
local M = {}

--- 840, 12.3k, 182k, 1.5M.
---@param count number
---@return string
function M.short(count)
  for _, unit in ipairs({ { 1e6, 'M' }, { 1e3, 'k' } }) do
    local size, sign = unpack(unit)
    if count >= size then
      return (count < 100 * size and '%.1f%s' or '%.0f%s'):format(count / size, sign)
    end
  end
  return ('%d'):format(count)
end

--- 1 line, 2 lines.
---@param count integer
---@param noun string
---@return string
function M.counted(count, noun)
  return ('%d %s%s'):format(count, noun, count == 1 and '' or 's')
end

--- The first of the keys, as it is typed here, or what to do where there is none.
---@param key sanderling.config.Key
---@param otherwise string
---@return string
function M.key(key, otherwise)
  local first = type(key) == 'table' and key[1] or key
  if type(first) ~= 'string' then
    return otherwise
  end
  return (
    first:gsub('<%a*[Ll]eader>', function(leader)
      return vim.fn.keytrans(vim.keycode(leader))
    end)
  )
end

--- A word that is none of `known`: `/mode: ask, auto or plan, not 'autoo'.`
---@param command string that does not take it
---@param known string[] two at least
---@param word string
---@return string
function M.not_one_of(command, known, word)
  local list = table.concat(known, ', ', 1, #known - 1)
  return ("%s: %s or %s, not '%s'."):format(command, list, known[#known], word)
end

--- `text` in lines of at most `cells`, as far as its words allow.
---@param text string
---@param cells integer
---@return string[]
function M.wrapped(text, cells)
  local lines = {} ---@type string[]
  for word in text:gmatch('%S+') do
    local longer = #lines > 0 and lines[#lines] .. ' ' .. word
    if longer and vim.api.nvim_strwidth(longer) <= cells then
      lines[#lines] = longer
    else
      lines[#lines + 1] = word
    end
  end
  return lines
end

--- `text`, cut and marked as cut where it is wider than `cells`.
---@param text string
---@param cells integer
---@return string
function M.fitting(text, cells)
  if vim.api.nvim_strwidth(text) <= cells then
    return text
  end
  return vim.fn.printf('%.*S…', math.max(0, cells - 1), text)
end

--- How wide the window of this tab page is that shows `buf`; where none does, the screen.
---@param buf integer
---@return integer
function M.width_of(buf)
  local win = vim.fn.bufwinid(buf)
  return win ~= -1 and vim.api.nvim_win_get_width(win) or vim.o.columns
end

return M
