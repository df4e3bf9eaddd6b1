--- Text for the screen: without hidden characters, fitted to a width; numbers and durations.
local M = {}

local icons = require('sanderling.ui.icons')
local unseen = require('sanderling.ui.unseen')

local MAX_LINE_CHARS = 300
local MAX_SHOWN_BYTES = 10000 -- of a line: Neovim processes all of it for each part that it draws

--- Return `text` as one line, with invisible and bidi characters marked.
---@param text string
---@return string
function M.plain(text)
  return unseen.marked((text:gsub('[%z\1-\31\127]+', ' ')), icons.hidden)
end

--- Return the line that opened the code fence still open after `line`, if any.
---@param line string
---@param fence? string the line that opened the fence before it
---@return string?
function M.fence_behind(line, fence)
  local run = line:match('^%s*(```+)') or line:match('^%s*(~~~+)')
  if not (run and fence) then
    return fence or run and line
  end
  local is_end = vim.startswith(run, fence:match('^%s*([`~]+)'))
    and line:find('^%s*' .. run .. '%s*$')
  return not is_end and fence or nil
end

--- Return the first line of `text`, cut if it is very long.
---@param text string
---@return string
function M.first_line(text)
  local line, rest = text:match('^([^\n]*)(.*)$')
  line = M.plain(line:sub(1, MAX_SHOWN_BYTES))
  if vim.fn.strchars(line, true) > MAX_LINE_CHARS then
    line, rest = vim.fn.strcharpart(line, 0, MAX_LINE_CHARS), 'more'
  end
  return line .. (rest ~= '' and ' ' .. icons.more or '')
end

--- Return `text` without surrounding whitespace. (vim.trim() takes quadratic time on whitespace alone: 4 s for 32 kB.)
---@param text string
---@return string
function M.trimmed(text)
  local first, last = text:find('%S'), #text
  while first and text:find('^%s', last) do
    last = last - 1
  end
  return first and text:sub(first, last) or ''
end

--- Return `text` without trailing line breaks. (A pattern would take quadratic time on line breaks in the middle.)
---@param text string
---@return string
function M.without_end(text)
  local last = #text
  while text:byte(last) == 10 do
    last = last - 1
  end
  return text:sub(1, last)
end

---@param text string
---@return string[] lines, without empty ones at the end
function M.lines_of(text)
  return vim.split(M.without_end(text), '\n', { plain = true })
end

--- Return the lines of `text`, with very long ones broken.
---@param text string
---@return string[]
function M.broken_lines_of(text)
  local lines = {} ---@type string[]
  for _, line in ipairs(M.lines_of(text)) do
    local first = 1
    repeat
      local last = math.min(first + MAX_SHOWN_BYTES - 1, #line)
      if last < #line then
        last = last + vim.str_utf_start(line, last + 1) -- at the end of a character
      end
      lines[#lines + 1] = line:sub(first, last)
      first = last + 1
    until first > #line
  end
  return lines
end

--- Return `text` with tabs expanded, and unprintable characters as Neovim shows them.
---@param text string
---@param tabstop integer
---@param col integer cells before it
---@return string
---@return integer col after it
function M.expanded(text, tabstop, col)
  if not text:find('[^ -~]') then
    return text, col + #text
  end
  local parts = {}
  for piece, tab in text:gmatch('([^\t]*)(\t?)') do
    piece = vim.fn.strtrans(piece)
    col = col + vim.api.nvim_strwidth(piece)
    local width = tab ~= '' and tabstop - col % tabstop or 0
    parts[#parts + 1], col = piece .. (' '):rep(width), col + width
  end
  return table.concat(parts), col
end

--- 840, 12.3k, 182k, 1.5M.
---@param count number
---@return string
function M.short(count)
  for _, unit in ipairs({ { 1e6, 'M' }, { 1e3, 'k' } }) do
    local size, sign = unpack(unit)
    if count >= 0.9995 * size and count >= 1000 then -- 999,999 is 1.0M
      return (count < 99.95 * size and '%.1f%s' or '%.0f%s'):format(count / size, sign)
    end
  end
  return ('%d'):format(count)
end

---@param usd? number
---@return string
function M.dollars(usd)
  usd = usd or 0
  return usd > 0 and usd < 0.005 and '<$0.01' or ('$%.2f'):format(usd)
end

--- 5 kB, 1.2 MB.
---@param bytes integer
---@return string
function M.bytes(bytes)
  if bytes < 1e6 then
    return ('%d kB'):format(math.ceil(bytes / 1000))
  end
  return ('%.1f MB'):format(bytes / 1e6)
end

--- 1 line, 2 lines.
---@param count integer
---@param noun string
---@return string
function M.counted(count, noun)
  return ('%d %s%s'):format(count, noun, count == 1 and '' or 's')
end

---@param list string[]
---@param lead string
---@return string[]
function M.beginning_with(list, lead)
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, list)
end

--- Join `known` as a choice: `ask, auto or plan`.
---@param known string[] at least two
---@param quote? string around each
---@return string
function M.one_of(known, quote)
  local quoted = vim.tbl_map(function(word)
    return (quote or '') .. word .. (quote or '')
  end, known)
  return ('%s or %s'):format(table.concat(quoted, ', ', 1, #quoted - 1), quoted[#quoted])
end

--- Return the error for an unknown word: `/mode: ask, auto or plan, not 'autoo'.`
---@param command string that rejects it
---@param known string[] at least two
---@param word string
---@return string
function M.not_one_of(command, known, word)
  return ("%s: %s, not '%s'."):format(command, M.one_of(known), word)
end

--- Wrap `text` into lines of at most `cells`; longer words are not broken.
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

--- Wrap `text` into lines of at most `cells`. Longer words, such as text without blanks, are broken.
---@param text string
---@param cells integer
---@return string[]
function M.filled(text, cells)
  cells = math.max(cells, 2)
  local lines = {} ---@type string[]
  for word in text:gmatch('%S+') do
    local longer = #lines > 0 and lines[#lines] .. ' ' .. word
    local is_long = vim.api.nvim_strwidth(word) > cells
    if longer and (is_long or vim.api.nvim_strwidth(longer) <= cells) then
      lines[#lines] = longer
    else
      lines[#lines + 1] = word
    end
    while vim.api.nvim_strwidth(lines[#lines]) > cells do
      local line = lines[#lines]
      lines[#lines] = vim.fn.printf('%.*S', cells, line)
      lines[#lines + 1] = line:sub(#lines[#lines] + 1)
    end
  end
  return lines
end

--- Cut `text` if it is wider than `cells`, and mark it as cut.
---@param text string
---@param cells integer
---@return string
function M.fitting(text, cells)
  if vim.api.nvim_strwidth(text) <= cells then
    return text
  end
  local more = icons.more
  local room = cells - vim.api.nvim_strwidth(more)
  if room < 0 then
    room, more = math.max(0, cells), ''
  end
  return vim.fn.printf('%.*S', room, text) .. more
end

--- Cut out the middle of `text` if it is wider than `cells`: the ends of commands and paths tell more.
---@param text string
---@param cells integer
---@return string
function M.shortened(text, cells)
  local room = cells - vim.api.nvim_strwidth(icons.more)
  if room < 2 or vim.api.nvim_strwidth(text) <= cells then
    return M.fitting(text, cells)
  end
  local behind = math.floor(room / 2)
  local from = math.max(0, vim.fn.strchars(text, true) - behind)
  local tail = vim.fn.strcharpart(text, from, behind, true)
  while vim.api.nvim_strwidth(tail) > behind do
    tail = vim.fn.strcharpart(tail, 1, behind, true)
  end
  local head = vim.fn.printf('%.*S', room - vim.api.nvim_strwidth(tail), text)
  return head .. icons.more .. tail
end

---@param seconds integer
---@return string
function M.duration(seconds)
  if seconds < 60 then
    return ('%d s'):format(seconds)
  end
  local minutes = math.floor(seconds / 60)
  if minutes < 60 then
    return ('%d min %d s'):format(minutes, seconds % 60)
  end
  return ('%d h %d min'):format(math.floor(minutes / 60), minutes % 60)
end

--- Return how many cells a window has for text.
---@param win integer
---@return integer
function M.cells_in(win)
  return vim.api.nvim_win_get_width(win) - vim.fn.getwininfo(win)[1].textoff
end

--- Return how many cells the window of this tab page that shows `buf` has for text; without one, the screen.
---@param buf integer
---@return integer
function M.width_of(buf)
  local win = vim.fn.bufwinid(buf)
  return win ~= -1 and M.cells_in(win) or vim.o.columns
end

---@param added integer
---@param removed integer
---@return string numbers of lines
function M.counts(added, removed)
  return ('+%d %s%d'):format(added, icons.minus, removed)
end

--- Return one line about a file that undo restored, or would restore.
---@param file sanderling.RestoredFile
---@return string
function M.restored(file)
  local added, removed = file.added or 0, file.removed or 0
  local parts = { M.plain(file.path) }
  if file.how == 'left' then
    parts[2] = 'stays: ' .. M.plain(file.why or '')
  elseif added + removed > 0 then
    parts[2] = M.counts(added, removed)
  end
  if file.how == 'merged' then
    parts[#parts + 1] = 'merged with your changes'
  end
  return table.concat(parts, '  ')
end

return M
