--- The queued prompts as editable text.
local M = {}

local api = vim.api
local float = require('sanderling.ui.float')
local bus = require('sanderling.host.bus')
local icons = require('sanderling.ui.icons')
local key_table = require('sanderling.ui.keys')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local scratch = require('sanderling.ui.scratch')
local states = require('sanderling.session.state')
local waiting_block = require('sanderling.transcript.blocks.waiting')

local ns = api.nvim_create_namespace('sanderling_waiting')

---@class (exact) sanderling.chat.waiting.Entry
---@field prompt sanderling.Prompt
---@field header string its line in the edited list

---@class (exact) sanderling.chat.waiting.List in an edited buffer
---@field session_id string
---@field entries sanderling.chat.waiting.Entry[]

---@type table<integer, sanderling.chat.waiting.List> by buffer
local lists = {}

--- Return the rule that begins headers, long enough that no prompt contains it.
---@param prompts sanderling.Prompt[]
---@return string
local function rule_for(prompts)
  local rule = icons.rule:rep(2)
  for _, prompt in ipairs(prompts) do
    while prompt.text:find(rule, 1, true) do
      rule = rule .. icons.rule
    end
  end
  return rule
end

---@param waiting sanderling.session.state.Waiting
---@return sanderling.chat.waiting.Entry[] in sending order
local function entries_of(waiting)
  local steps = waiting_block.in_order(waiting)
  local rule = rule_for(vim.tbl_map(function(step)
    return step.prompt
  end, steps))
  local entries = {} ---@type sanderling.chat.waiting.Entry[]
  for i, step in ipairs(steps) do
    local header = ('%s %d %s %s %s'):format(rule, i, step.sign, step.when, rule)
    entries[i] = { prompt = step.prompt, header = header }
  end
  return entries
end

---@param session_id string
---@return sanderling.chat.waiting.Entry[]
local function entries_in(session_id)
  return entries_of(live.state_of(session_id).waiting)
end

-- as text -------------------------------------------------------------------------------------------------------------

--- Return each prompt below its header.
---@param entries sanderling.chat.waiting.Entry[]
---@return string[] lines
---@return integer[] header_rows
local function text_of(entries)
  local lines, header_rows = {}, {}
  for _, entry in ipairs(entries) do
    header_rows[#header_rows + 1] = #lines
    lines[#lines + 1] = entry.header
    vim.list_extend(lines, vim.split(entry.prompt.text, '\n', { plain = true }))
  end
  return #lines > 0 and lines or { 'No prompts are queued.' }, header_rows
end

--- Write the current queue into the buffer.
---@param buf integer
local function fill(buf)
  local list = lists[buf]
  list.entries = entries_in(list.session_id)
  local lines, header_rows = text_of(list.entries)
  api.nvim_buf_set_lines(buf, 0, -1, true, lines)
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  for _, row in ipairs(header_rows) do
    api.nvim_buf_set_extmark(buf, ns, row, 0, { end_row = row + 1, hl_group = 'AgentUser' })
  end
  scratch.set_buf_options(buf, { modified = false })
end

---@param list sanderling.chat.waiting.List
---@return table<string, true>
local function headers_of(list)
  local headers = {}
  for _, entry in ipairs(list.entries) do
    headers[entry.header] = true
  end
  return headers
end

--- Return the text of each prompt in the buffer.
---@param buf integer
---@return table<string, string>? texts by header; nil for a deleted header
---@return string? error
local function parse(buf)
  local known = headers_of(lists[buf])
  local header ---@type string?
  local sections = {} ---@type table<string, string[]>
  for _, line in ipairs(api.nvim_buf_get_lines(buf, 0, -1, true)) do
    if known[line] and not sections[line] then
      header = line
      sections[line] = {}
    elseif header then
      table.insert(sections[header], line)
    elseif line ~= '' then
      return nil, 'Text above the first header; undo or restore the header.'
    end
  end
  return vim.tbl_map(function(lines)
    return table.concat(lines, '\n')
  end, sections)
end

---@param session_id string
---@param id string
---@return boolean the prompt is still queued
local function waits(session_id, id)
  return vim.iter(states.prompts_waiting(live.state_of(session_id))):any(function(prompt)
    return prompt.id == id
  end)
end

--- `:write`: apply the edited texts. Prompts without text are removed.
---@param buf integer
local function save(buf)
  local list = lists[buf]
  local texts, refusal = parse(buf)
  if not texts then
    message.tell(assert(refusal), vim.log.levels.ERROR)
    return
  end
  local gone = 0
  for _, entry in ipairs(list.entries) do
    local prompt, text = entry.prompt, texts[entry.header] or ''
    local is_changed = text ~= prompt.text
    if is_changed and waits(list.session_id, prompt.id) then
      text = text:find('%S') and text or ''
      local action = { type = 'edit_waiting', id = prompt.id, text = text }
      if not live.act(list.session_id, action) then
        return -- the edits stay unwritten
      end
    elseif is_changed then
      gone = gone + 1
    end
  end
  scratch.set_buf_options(buf, { modified = false })
  if gone > 0 then
    message.tell(
      ('%d prompt%s sent before your edit.'):format(gone, gone == 1 and ' was' or 's were'),
      vim.log.levels.WARN
    )
    fill(buf)
  end
end

--- `dd`: deleting a header also deletes its prompt, and deleting a one-line prompt its header.
---@param buf integer
---@return string keys
local function delete_keys(buf)
  local known = headers_of(lists[buf])
  local lines = api.nvim_buf_get_lines(buf, 0, -1, true)
  local lnum = vim.fn.line('.')
  local first = lnum
  while first > 1 and not known[lines[first]] do
    first = first - 1
  end
  local behind = first + 1
  while behind <= #lines and not known[lines[behind]] do
    behind = behind + 1
  end
  local is_whole = known[lines[first]] and (lnum == first or behind - first == 2)
  if vim.v.count > 0 or not is_whole then
    return 'dd'
  end
  return (lnum > first and 'k' or '') .. (behind - first) .. 'dd'
end

---@param session_id string
---@return integer? buf with the edited list
local function buffer_of(session_id)
  for buf, list in pairs(lists) do
    if list.session_id == session_id then
      return buf
    end
  end
end

---@type table<string, fun(): string?>
local actions = {}

function actions.waiting_delete()
  return delete_keys(api.nvim_get_current_buf())
end

function actions.waiting_send()
  local session_id = lists[api.nvim_get_current_buf()].session_id
  if live.state_of(session_id).waiting.is_held then
    live.act(session_id, { type = 'release_waiting' })
  end
end

--- Make the buffer editable and writable.
---@param buf integer
---@param session_id string
local function make_editable(buf, session_id)
  scratch.set_buf_options(buf, { buftype = 'acwrite', modifiable = true })
  lists[buf] = { session_id = session_id, entries = {} }
  api.nvim_create_autocmd('BufWriteCmd', {
    buffer = buf,
    desc = 'Agent: change the queued prompts',
    callback = function()
      save(buf)
    end,
  })
  api.nvim_create_autocmd('BufWipeout', {
    buffer = buf,
    desc = 'Agent: forget the list',
    callback = function()
      lists[buf] = nil
    end,
  })
end

--- Show the queued prompts for editing; `:w` applies the changes.
---@param session_id string
function M.show(session_id)
  local shown = buffer_of(session_id)
  if shown then
    api.nvim_set_current_win(vim.fn.win_findbuf(shown)[1])
    return
  end
  local entries = entries_in(session_id)
  -- A prompt that the host has not confirmed is counted on the screen already, and listed as soon as it is.
  if #entries == 0 and #live.state_of(session_id).unconfirmed == 0 then
    message.tell('No prompts are queued.')
    return
  end
  local key = key_table.name(key_table.chosen.waiting_delete, 'dd')
  local buf = page.view('Waiting prompts', (text_of(entries)), 'waiting prompts', {
    place = 'waiting', -- not <Esc>: it is pressed by habit where text is edited
    actions = actions,
    footer = (' :w saves, %s drops,%s'):format(key, float.closing()),
  })
  make_editable(buf, session_id)
  fill(buf)
end

-- Prompts have come or gone. A modified list is left alone.
for _, type in ipairs({ 'waiting_changed', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id)
    local buf = buffer_of(session_id)
    if buf and not vim.bo[buf].modified then
      fill(buf)
      page.fit_height(vim.fn.win_findbuf(buf)[1])
    end
  end)
end

return M
