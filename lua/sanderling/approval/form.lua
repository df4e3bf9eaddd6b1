--- The form of a question with fields: a float in which each field is changed with vim.ui.input or vim.ui.select. Its values are kept
--- when it is closed, until the question is settled.
local M = {}

local api = vim.api
local attention = require('sanderling.ui.attention')
local icons = require('sanderling.ui.icons')
local message = require('sanderling.ui.message')
local page = require('sanderling.access.page')
local scratch = require('sanderling.ui.scratch')
local ui_float = require('sanderling.ui.float')
local words = require('sanderling.ui.words')

local MAX_MESSAGE_CELLS = 74
local MAX_LABEL_CELLS = 24
local MAX_BYTES = 2000 -- of a text that a server gives for a field
local FORGOTTEN_MS = 5000 -- values that were sent, after the question is settled
local NOTHING = '(nothing)'
local NAMED = {
  { 'form_change', 'change' },
  { 'form_send', 'send' },
  { 'form_decline', 'decline' },
  { 'form_cancel', 'cancel' },
  { 'close', 'later' },
}
local ns = api.nvim_create_namespace('sanderling_form')

---@alias sanderling.approval.form.OnAnswer fun(q: sanderling.session.state.Question, answer: table)

---@class (exact) sanderling.approval.form.Form
---@field q sanderling.session.state.Question
---@field on_answer sanderling.approval.form.OnAnswer
---@field values table<string, string>
---@field rows table<integer, sanderling.FormField> by lnum
---@field buf? integer
---@field is_here? fun(): boolean whether the user is still where they sent it

---@type table<string, sanderling.approval.form.Form> by the id of the question
local forms = {}

---@param text string
---@return string
local function said(text)
  local more = #text > MAX_BYTES and ' ' .. icons.more or ''
  return words.plain(text:sub(1, MAX_BYTES)) .. more
end

-- text ----------------------------------------------------------------------------------------------------------------

---@param field sanderling.FormField
---@param value string
---@return string
local function title_of(field, value)
  for _, choice in ipairs(field.choices or {}) do
    if choice.value == value then
      return said(choice.title or choice.value)
    end
  end
  return said(value)
end

---@param field sanderling.FormField
---@param value string
---@return string
local function shown(field, value)
  if field.kind == 'boolean' then
    return value == 'true' and 'yes' or 'no'
  elseif value == '' then
    return NOTHING
  elseif field.kind ~= 'choices' then
    return title_of(field, value)
  end
  local titles = vim.tbl_map(function(each)
    return title_of(field, each)
  end, vim.split(value, '\n', { plain = true }))
  return table.concat(titles, ', ')
end

---@param field sanderling.FormField
---@return string
local function label_of(field)
  local label = said(field.label or field.name)
  return words.fitting(label, MAX_LABEL_CELLS) .. (field.is_required and ' *' or '')
end

---@param form sanderling.approval.form.Form
---@return string[] lines
---@return { row: integer, col: integer, end_col: integer, hl: string }[] marks
local function text_of(form)
  local event = form.q.event
  local lines, marks = words.wrapped(said(event.reason), MAX_MESSAGE_CELLS), {}
  lines[#lines + 1] = ''
  local width, has_required = 0, false
  for _, field in ipairs(event.fields) do
    width = math.max(width, api.nvim_strwidth(label_of(field)))
    has_required = has_required or field.is_required or false
  end
  form.rows = {}
  for _, field in ipairs(event.fields) do
    local label, value = label_of(field), shown(field, form.values[field.name])
    local before = label .. (' '):rep(width - api.nvim_strwidth(label) + 2)
    lines[#lines + 1] = before .. value
    local row = #lines - 1
    form.rows[#lines] = field
    marks[#marks + 1] = { row = row, col = 0, end_col = #label, hl = 'AgentApprovalKey' }
    if value == NOTHING then
      marks[#marks + 1] =
        { row = row, col = #before, end_col = #lines[#lines], hl = 'AgentPlaceholder' }
    end
    for _, line in ipairs(words.wrapped(said(field.help or ''), MAX_MESSAGE_CELLS - 2)) do
      lines[#lines + 1] = '  ' .. line
      form.rows[#lines] = field
      marks[#marks + 1] =
        { row = #lines - 1, col = 0, end_col = #lines[#lines], hl = 'AgentStatus' }
    end
  end
  vim.list_extend(lines, has_required and { '', '* required' } or {})
  return lines, marks
end

---@param form sanderling.approval.form.Form
local function fill(form)
  local buf = assert(form.buf)
  local lines, marks = text_of(form)
  scratch.set_buf_options(buf, { modifiable = true })
  api.nvim_buf_set_lines(buf, 0, -1, true, lines)
  scratch.set_buf_options(buf, { modifiable = false })
  api.nvim_buf_clear_namespace(buf, ns, 0, -1)
  for _, mark in ipairs(marks) do
    local opts = { end_col = mark.end_col, hl_group = mark.hl }
    api.nvim_buf_set_extmark(buf, ns, mark.row, mark.col, opts)
  end
end

-- changing ------------------------------------------------------------------------------------------------------------

---@param form sanderling.approval.form.Form
---@param field sanderling.FormField
---@param value string
local function set(form, field, value)
  form.values[field.name] = value
  if form.buf and api.nvim_buf_is_valid(form.buf) then
    fill(form)
  end
end

---@param form sanderling.approval.form.Form
---@param field sanderling.FormField
local function choose(form, field)
  vim.ui.select(field.choices, {
    prompt = said(field.label or field.name) .. ':',
    kind = 'sanderling_form',
    format_item = function(choice)
      return title_of(field, choice.value)
    end,
  }, function(choice)
    if choice then
      set(form, field, choice.value)
    end
  end)
end

--- Choose several: each choice toggles one, until the user is done.
---@param form sanderling.approval.form.Form
---@param field sanderling.FormField
local function choose_several(form, field)
  local value = form.values[field.name]
  local chosen = value ~= '' and vim.split(value, '\n', { plain = true }) or {}
  local items = vim.list_extend({ { value = '' } }, field.choices)
  vim.ui.select(items, {
    prompt = said(field.label or field.name) .. ':',
    kind = 'sanderling_form',
    format_item = function(choice)
      if choice.value == '' then
        return 'Done'
      end
      local is_chosen = vim.list_contains(chosen, choice.value)
      local sign = is_chosen and icons.completed or icons.pending
      return ('%s %s'):format(sign, title_of(field, choice.value))
    end,
  }, function(choice)
    if not choice or choice.value == '' then
      return
    end
    local kept = vim.tbl_filter(function(each)
      local is_in = vim.list_contains(chosen, each.value)
      return is_in ~= (each == choice)
    end, field.choices)
    local values = vim.tbl_map(function(each)
      return each.value
    end, kept)
    set(form, field, table.concat(values, '\n'))
    choose_several(form, field)
  end)
end

---@param form sanderling.approval.form.Form
local function change(form)
  local field = form.rows[vim.fn.line('.')]
  if not field then
    message.tell('No field under the cursor.')
  elseif field.kind == 'boolean' then
    set(form, field, form.values[field.name] == 'true' and 'false' or 'true')
  elseif field.kind == 'choice' then
    choose(form, field)
  elseif field.kind == 'choices' then
    choose_several(form, field)
  else
    local prompt = said(field.label or field.name) .. ': '
    message.ask({ prompt = prompt, default = form.values[field.name] }, function(value)
      if value then
        set(form, field, value)
      end
    end)
  end
end

-- opening and sending -------------------------------------------------------------------------------------------------

---@param form sanderling.approval.form.Form
local function close(form)
  local buf = form.buf
  form.buf = nil
  if buf and api.nvim_buf_is_valid(buf) then
    api.nvim_buf_delete(buf, { force = true })
  end
end

---@param form sanderling.approval.form.Form
---@param answer table
local function send(form, answer)
  close(form)
  form.is_here = attention.watch()
  form.on_answer(form.q, answer)
end

--- Return the first required field that is empty, if any.
---@param form sanderling.approval.form.Form
---@return sanderling.FormField?
local function first_missing(form)
  for _, field in ipairs(form.q.event.fields) do
    if field.is_required and form.values[field.name] == '' then
      return field
    end
  end
end

---@param form sanderling.approval.form.Form
local function send_values(form)
  local missing = first_missing(form)
  if missing then
    local label = said(missing.label or missing.name)
    message.tell(('%s is required.'):format(label), vim.log.levels.WARN)
    return
  end
  send(form, { answer = 'once', values = form.values })
end

--- Show and focus the form of `q`.
---@param q sanderling.session.state.Question
---@param on_answer sanderling.approval.form.OnAnswer
function M.open(q, on_answer)
  local known = forms[q.event.id] or { values = {} }
  local form = { q = q, on_answer = on_answer, values = known.values, rows = {} }
  for _, field in ipairs(q.event.fields) do
    form.values[field.name] = form.values[field.name] or field.value or ''
  end
  forms[q.event.id] = form
  vim.cmd.stopinsert()
  local lines = text_of(form)
  local win
  form.buf, win = page.view('For ' .. q.event.tool, lines, 'form', {
    place = 'form',
    is_above = true,
    footer = ui_float.naming(NAMED),
    actions = {
      form_change = function()
        change(form)
      end,
      form_send = function()
        send_values(form)
      end,
      form_decline = function()
        send(form, { answer = 'deny' })
      end,
      form_cancel = function()
        send(form, { answer = 'cancel' })
      end,
    },
  })
  fill(form)
  local first = #lines
  for lnum in pairs(form.rows) do
    first = math.min(first, lnum)
  end
  api.nvim_win_set_cursor(win, { first, 0 })
end

--- Reopen the form of a question that is asked again because the values were invalid, if the user is still where they were.
---@param q sanderling.session.state.Question
function M.ask_again(q)
  local form = forms[q.event.id]
  if form and form.is_here and form.is_here() then
    M.open(q, form.on_answer)
  end
end

--- Close the form of a settled question. Its values are dropped, later if the question may be asked again.
---@param id string
function M.settle(id)
  local form = forms[id]
  if not form then
    return
  end
  close(form)
  vim.defer_fn(function()
    if forms[id] == form then
      forms[id] = nil
    end
  end, form.is_here and FORGOTTEN_MS or 0)
end

return M
