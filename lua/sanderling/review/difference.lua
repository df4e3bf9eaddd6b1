--- All changes of the agent, also those made by commands: as a list with hunks for unreviewed ones, or in Neovim's diff
--- mode.
local M = {}

local api = vim.api
local ask = require('sanderling.host.ask')
local closed_files = require('sanderling.review.closed_files')
local commands = require('sanderling.review.commands')
local edits = require('sanderling.editing.hunks')
local hunks = require('sanderling.review.hunks')
local lazy = require('sanderling.ui.lazy')
local live = require('sanderling.session.live')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local reading = require('sanderling.access.reading')
local scratch = require('sanderling.ui.scratch')
local walk = lazy('sanderling.review.walk')
local words = require('sanderling.ui.words')

require('sanderling.review') -- it draws the hunks

M.SCOPES = { 'turn', 'session' }

local MAX_TABS = 10

--- List the reviewed changes of a file.
---@param buf integer
---@param file sanderling.FileBefore
---@return vim.quickfix.entry[]
local function reviewed_in(buf, file)
  local lines, entries = api.nvim_buf_get_lines(buf, 0, -1, true), {}
  for _, part in ipairs(edits.differences(edits.lines_of(file.text or ''), lines)) do
    local _, gone, row, count = unpack(part)
    local is_open = vim.iter(hunks.list(buf)):any(function(hunk)
      return row - 1 <= hunk.row + hunk.count and hunk.row <= row - 1 + count
    end)
    if not is_open then
      local text = commands.summary(count, gone, lines[row] or '')
      entries[#entries + 1] = { bufnr = buf, lnum = row, text = 'reviewed: ' .. text }
    end
  end
  return entries
end

--- Load a file and make hunks of its unreviewed changes.
---@param file sanderling.FileBefore
---@param source sanderling.review.Source
---@return integer? buf nil: it cannot be loaded
---@return string? problem
local function load(file, source)
  local buf, problem = loading.load(file.path, true) -- the buffer of a removed file is empty
  if buf then
    closed_files.forget(file.path)
    if file.reviewed ~= 'all' then
      local is_new = file.what == 'created' and not file.reviewed
      local before = file.reviewed and file.baseline or file.text
      hunks.add(buf, edits.lines_of(before or ''), source, is_new)
    end
  end
  return buf, problem
end

--- List all changes.
---@param result sanderling.FilesBefore
---@param source sanderling.review.Source
local function show_inline(result, source)
  local items, list = {}, {}
  for _, file in ipairs(result.files) do
    local buf, problem = load(file, source)
    if not buf then
      items[#items + 1] = { filename = file.path, text = problem }
    else
      vim.list_extend(list, hunks.list(buf))
      vim.list_extend(items, file.reviewed and reviewed_in(buf, file) or {})
    end
  end
  for _, file in ipairs(result.left or {}) do
    local text = ('The previous content is unknown: %s.'):format(file.why)
    items[#items + 1] = { filename = file.path, text = text }
  end
  commands.show_list("The agent's changes", list, items)
end

--- Walk through all changes, and name the files that are not in the walk.
---@param result sanderling.FilesBefore
---@param source sanderling.review.Source
---@param project string
local function walk_through(result, source, project)
  local files, left = {}, {} ---@type table[], string[]
  for _, file in ipairs(result.files) do
    local buf, problem = load(file, source)
    if buf then
      files[#files + 1] = { buf = buf, before = file }
    else
      left[#left + 1] = problem
    end
  end
  for _, file in ipairs(result.left or {}) do
    left[#left + 1] = ('%s: its previous content is unknown: %s.'):format(file.path, file.why)
  end
  if #left > 0 then
    message.tell('Not in the walk: ' .. table.concat(left, ' '), vim.log.levels.WARN)
  end
  walk.begin(files, project)
end

--- Compare each file with its previous content in a tab page of its own.
---@param result sanderling.FilesBefore
local function show_side_by_side(result)
  for i, file in ipairs(result.files) do
    if i > MAX_TABS then
      message.tell(('Showing the first %d of %d files.'):format(MAX_TABS, #result.files))
      break
    end
    local now, problem
    if file.what ~= 'removed' then
      now, problem = loading.load(file.path, true)
    end
    if problem then
      message.tell(problem, vim.log.levels.WARN)
    end
    vim.cmd.tabnew()
    vim.bo.bufhidden = 'wipe'
    if now then
      loading.show(api.nvim_get_current_win(), now)
    end
    vim.cmd('diffthis | leftabove vnew')
    local buf = api.nvim_get_current_buf()
    api.nvim_buf_set_lines(buf, 0, -1, true, edits.lines_of(file.text or ''))
    loading.color(buf, file.path)
    scratch.set_buf_options(buf, { buftype = 'nofile', bufhidden = 'wipe', modifiable = false })
    local name = vim.fn.fnamemodify(file.path, ':~:.'):gsub('%%', '%%%%')
    vim.b[buf].sanderling_shown_as = ('%s (before the change)'):format(file.path)
    local what = file.what == 'removed' and 'removed' or 'changed'
    vim.wo[0][0].winbar = ('%s before the agent %s it'):format(name, what)
    vim.cmd.diffthis()
    reading.without({ 'BufEnter' }, function() -- the command itself returns, for every tab
      vim.cmd.wincmd('p')
    end)
    loading.show(api.nvim_get_current_win(), api.nvim_get_current_buf())
    if vim.wo.winbar == '' then -- otherwise this side's lines would be shifted against the other's
      vim.wo[0][0].winbar = name .. ' now'
    end
  end
end

--- Show the agent's changes.
---@param args string 'turn' (the last one) or 'session', perhaps after 'walk'
---@param is_side_by_side boolean
function M.show(args, is_side_by_side)
  local walking, scope = args:match('^(walk)%f[%s%z]%s*(.*)$')
  scope = scope or args
  if walking and is_side_by_side then
    error('A walk takes no !.', 0)
  end
  scope = scope ~= '' and scope or 'turn'
  if not vim.list_contains(M.SCOPES, scope) then
    local known = vim.list_extend(vim.list_slice(M.SCOPES), walking and {} or { 'walk' })
    error(('scope: expected %s, got %s'):format(words.one_of(known), scope), 0)
  end
  local session = live.current()
  if not session then
    message.tell('No session is open. :AgentChat opens one.', vim.log.levels.WARN)
    return
  end
  local request = {
    type = 'show_difference',
    session_id = session.id,
    what = scope,
    has_reasons = walking ~= nil,
  }
  ask(request, function(result)
    if #result.files + #(result.left or {}) == 0 then
      local command = ':AgentDiff ' .. (walking and 'walk ' or '') .. 'session'
      local more = scope == 'turn' and (' %s shows all turns.'):format(command) or ''
      message.tell(('The agent changed nothing in this %s.%s'):format(scope, more))
      return
    end
    local source = { session_id = session.id, tool_use_id = '', turn = session.state.turn or '' }
    if is_side_by_side then
      show_side_by_side(result)
    elseif walking then
      walk_through(result, source, session.project)
    else
      show_inline(result, source)
    end
  end, function(sentence)
    message.tell(sentence, vim.log.levels.WARN)
  end)
end

return M
