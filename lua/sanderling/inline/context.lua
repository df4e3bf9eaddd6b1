--- The context of an edit: the lines around it, and an outline of the rest of the file.
local M = {}

local api = vim.api
local context = require('sanderling.prompt.context')
local outline = require('sanderling.prompt.outline')

local AROUND_LINES, AROUND_BYTES = 100, 32 * 1024 -- before it, and after it
local MAX_BYTES = 200 * 1024 -- of the text to replace: models do not write more in one answer
local OUTLINE_LINES, OUTLINE_ENTRIES = 20000, 150

--- List the definitions before and after the lines that are sent in full.
---@param buf integer
---@param first integer row of those lines
---@param last integer
---@return string
function M.outline(buf, first, last)
  local lines = api.nvim_buf_get_lines(buf, 0, OUTLINE_LINES, false)
  local found = outline.of(lines, vim.bo[buf].filetype, OUTLINE_ENTRIES, function(row)
    return row < first or row > last
  end)
  return table.concat(found, '\n')
end

--- Return as many lines as can be sent, from the end of `lines` next to the region.
---@param lines string[]
---@param is_before boolean
---@return string
local function near(lines, is_before)
  local bytes, kept = 0, {}
  local from, to, step = 1, #lines, 1
  if is_before then
    from, to, step = #lines, 1, -1
  end
  for i = from, to, step do
    bytes = bytes + #lines[i] + 1
    if bytes > AROUND_BYTES then
      break
    end
    table.insert(kept, is_before and 1 or #kept + 1, lines[i])
  end
  return (table.concat(kept, '\n'):gsub('\r', ''))
end

---@param lines string[]
---@return boolean each ends in a carriage return, which is part of Neovim's line
function M.has_returns(lines)
  return #lines > 0 and vim.iter(lines):all(function(line)
    return line:sub(-1) == '\r'
  end)
end

--- Join lines, without carriage returns if all of them end in one.
---@param lines string[]
---@return string
function M.joined(lines)
  local text = table.concat(lines, '\n')
  return M.has_returns(lines) and text:gsub('\r\n', '\n'):sub(1, -2) or text
end

--- Return the parts of the first and last line outside the region.
---@param region sanderling.inline.region.Region
---@return string head
---@return string tail
local function edges(region)
  if region.kind ~= 'characters' then
    return '', ''
  end
  local row, col, end_row, end_col = unpack(assert(region:spans())[1])
  local head = api.nvim_buf_get_text(region.buf, row, 0, row, col, {})[1]
  return head, api.nvim_buf_get_text(region.buf, end_row, end_col, end_row, -1, {})[1]
end

--- Return the lines around several regions of a buffer, for requests about each of them.
---@param buf integer
---@param first integer row of the first one
---@param last integer row of the last one
---@return string? shared nil: too much
function M.shared(buf, first, last)
  local from = math.max(0, first - AROUND_LINES)
  local lines = api.nvim_buf_get_lines(buf, from, last + 1 + AROUND_LINES, false)
  local text = table.concat(lines, '\n'):gsub('\r', '')
  return #text <= 2 * AROUND_BYTES and text or nil
end

--- Return the fields of a request about a region.
---@param region sanderling.inline.region.Region
---@param project string
---@return table? request nil: cannot be sent
---@return string? error why not
function M.of(region, project)
  local buf = region.buf
  local first, last = region:rows()
  if not first then
    return nil, 'The buffer was closed; nothing was sent.'
  end
  local name, shown_as = api.nvim_buf_get_name(buf), context.path_of(buf, project)
  local from = math.max(0, first - AROUND_LINES)
  local before = api.nvim_buf_get_lines(buf, from, first, false)
  local after = api.nvim_buf_get_lines(buf, last + 1, last + 1 + AROUND_LINES, false)
  local head, tail = edges(region)
  before[#before + 1] = head ~= '' and head or nil
  if tail ~= '' then
    table.insert(after, 1, tail)
  end
  local around = api.nvim_buf_get_lines(buf, from, last + 1 + AROUND_LINES, false)
  local _, err = context.text(around, shown_as, from + 1)
  local text = M.joined(region.text)
  if err then
    return nil, err
  elseif #text > MAX_BYTES then
    local problem = '%s: %d KB is too much for one answer (at most %d KB); nothing was sent.'
    return nil, problem:format(shown_as, #text / 1024, MAX_BYTES / 1024)
  end
  local whole = region.kind == 'block' and api.nvim_buf_get_lines(buf, first, last + 1, false) or {}
  return {
    project = project,
    path = vim.bo[buf].buftype == '' and name or '',
    shown_as = shown_as,
    filetype = vim.bo[buf].filetype,
    first_line = first + 1,
    kind = region.kind,
    text = text,
    before = near(before, true),
    after = near(after, false),
    lines = near(whole, false),
    outline = M.outline(buf, from, last + AROUND_LINES),
  }
end

return M
