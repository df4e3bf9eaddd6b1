--- The model's questions to the user, and its plan: which field of the question is shown, what the user has chosen so far, and the text.
--- A question has one to four fields, which are answered one after the other and sent together.
local M = {}

local api = vim.api
local config = require('sanderling.config')
local icons = require('sanderling.ui.icons')
local ui_keys = require('sanderling.ui.keys')
local words = require('sanderling.ui.words')

local KINDS = { question = true, plan = true }
local OWN_WORDS = '_text' -- ends the name of the value with the user's own words

---@class (exact) sanderling.approval.choosing.State
---@field index integer of the field that is shown
---@field chosen table<string, string[]> values by the field's name
---@field own table<string, string> the user's own words by the field's name

---@type table<string, sanderling.approval.choosing.State> by the question's id
local states = {}

---@param q sanderling.session.state.Question
---@return sanderling.approval.choosing.State
local function state_of(q)
  local id = q.event.id
  states[id] = states[id] or { index = 1, chosen = {}, own = {} }
  return states[id]
end

--- Does the model ask this, rather than the permissions or a server?
---@param q sanderling.session.state.Question
---@return boolean
function M.is_for(q)
  return KINDS[q.event.kind] ~= nil
end

--- Forget what was chosen for a settled question.
---@param id string
function M.settle(id)
  states[id] = nil
end

--- Return the field that is shown, its index and the number of fields.
---@param q sanderling.session.state.Question
---@return sanderling.FormField
---@return integer index
---@return integer count
function M.field(q)
  local index = state_of(q).index
  return assert(q.event.fields)[index], index, #q.event.fields
end

--- Is the question on the screen answered in words, without choices?
---@param q sanderling.session.state.Question
---@return boolean
function M.is_text(q)
  return M.is_for(q) and (M.field(q)).kind == 'string'
end

---@param q sanderling.session.state.Question
---@return sanderling.FormChoice[]
local function choices_of(q)
  return (M.field(q)).choices or {}
end

-- keys ----------------------------------------------------------------------------------------------------------------

---@param number integer
---@return string? as the user types it
local function key_of(number)
  local lhs = config.list_keys(config.options.keys.question_choice)[number]
  return lhs and not ui_keys.has_escape(lhs) and config.key_name(lhs, '') or nil
end

--- Return the number of the choice that a key chooses.
---@param lhs string
---@return integer?
function M.number_of(lhs)
  for number, each in ipairs(config.list_keys(config.options.keys.question_choice)) do
    if each == lhs then
      return number
    end
  end
end

--- Return the keys of the choices: `1-3`, or `j, k`.
---@param q sanderling.session.state.Question
---@return string? nil: none
function M.keys(q)
  local keys = {}
  for number = 1, #choices_of(q) do
    keys[#keys + 1] = key_of(number)
  end
  return #keys > 0 and ui_keys.joined(keys) or nil
end

-- text ----------------------------------------------------------------------------------------------------------------

---@param body sanderling.approval.Body
---@param line string
---@param col integer
---@param hl string
local function add(body, line, col, hl)
  body.lines[#body.lines + 1] = line
  body.marks[#body.marks + 1] = { row = #body.lines - 1, col = col, end_col = #line, hl = hl }
end

---@param body sanderling.approval.Body
---@param text string
---@param indent integer
---@param width integer
---@param hl string
local function add_text(body, text, indent, width, hl)
  for _, line in ipairs(words.wrapped(text, math.max(width - indent, 1))) do
    add(body, (' '):rep(indent) .. line, indent, hl)
  end
end

--- Add a choice: its key, whether it is marked, its label, and behind it or below it what it means.
---@param body sanderling.approval.Body
---@param q sanderling.session.state.Question
---@param number integer
---@param width integer
---@param is_terse? boolean without what it means
local function add_choice(body, q, number, width, is_terse)
  local field = M.field(q)
  local choice = assert(field.choices)[number]
  local chosen = state_of(q).chosen[field.name] or {}
  local is_chosen = vim.list_contains(chosen, choice.value)
  local key = key_of(number) or ' '
  local sign = field.kind == 'choices' and (is_chosen and icons.completed or icons.pending) .. ' '
    or ''
  local head = key .. '  ' .. sign
  local indent = api.nvim_strwidth(head)
  local label = words.plain((choice.title or '') ~= '' and choice.title or choice.value)
  local first = #body.lines
  for i, line in ipairs(words.wrapped(label, math.max(width - indent, 1))) do
    local lead = i == 1 and head or (' '):rep(indent)
    add(body, lead .. line, #lead, is_chosen and 'AgentApprovalTitle' or 'AgentApproval')
  end
  body.marks[#body.marks + 1] = { row = first, col = 0, end_col = #key, hl = 'AgentApprovalKey' }
  local help = is_terse and '' or words.plain(choice.help or '')
  local last = body.lines[#body.lines]
  if help ~= '' and api.nvim_strwidth(last .. '  ' .. help) <= width then
    body.lines[#body.lines] = last .. '  ' .. help
    body.marks[#body.marks + 1] = {
      row = #body.lines - 1,
      col = #last,
      end_col = #body.lines[#body.lines],
      hl = 'AgentStatus',
    }
  else
    add_text(body, help, indent, width, 'AgentStatus')
  end
  for lnum = first + 1, #body.lines do
    body.choices[lnum] = number
  end
end

--- Return the text of the field that is shown.
---@param q sanderling.session.state.Question
---@param width integer
---@param is_terse? boolean little room: only the labels of the choices
---@param asker? string the line that names the session
---@return sanderling.approval.Body
function M.body_of(q, width, is_terse, asker)
  local field = M.field(q)
  local body = { lines = {}, marks = {}, first = 1, last = 0, choices = {} }
  if asker then
    add(body, asker, 0, 'AgentStatus')
  end
  local text = q.event.kind == 'plan' and q.event.subject or field.label or ''
  for _, line in ipairs(words.lines_of(text)) do
    if words.trimmed(line) == '' then
      body.lines[#body.lines + 1] = ''
    end
    add_text(body, words.plain(line), 0, width, 'AgentApprovalTitle')
  end
  if #choices_of(q) > 0 and not is_terse then
    body.lines[#body.lines + 1] = ''
  end
  for number = 1, #choices_of(q) do
    add_choice(body, q, number, width, is_terse)
  end
  local own = state_of(q).own[field.name] or ''
  if own ~= '' then
    add(body, words.fitting('Your words: ' .. words.plain(own), width), 0, 'AgentStatus')
  elseif M.is_text(q) then
    add(body, 'Type your answer here.', 0, 'AgentPlaceholder')
  end
  return body
end

-- answers -------------------------------------------------------------------------------------------------------------

---@param q sanderling.session.state.Question
---@return string
function M.own_words(q)
  return state_of(q).own[M.field(q).name] or ''
end

--- Set the user's own words. Where only one answer counts, they replace the choice.
---@param q sanderling.session.state.Question
---@param text string
function M.set_own_words(q, text)
  local field, state = M.field(q), state_of(q)
  state.own[field.name] = text
  if field.kind ~= 'choices' then
    state.chosen[field.name] = nil
  end
end

--- Choose an answer; where several can be chosen, mark or unmark it.
---@param q sanderling.session.state.Question
---@param number integer
---@return boolean is_complete the field is answered
function M.choose(q, number)
  local field, state = M.field(q), state_of(q)
  local value = assert(field.choices)[number].value
  if field.kind ~= 'choices' then
    state.chosen[field.name], state.own[field.name] = { value }, nil
    return true
  end
  local chosen = state.chosen[field.name] or {}
  state.chosen[field.name] = vim
    .iter(field.choices)
    :map(function(choice)
      local is_in = vim.list_contains(chosen, choice.value)
      return is_in ~= (choice.value == value) and choice.value or nil
    end)
    :totable()
  return false
end

---@param q sanderling.session.state.Question
---@return boolean
function M.is_answered(q)
  local field, state = M.field(q), state_of(q)
  return #(state.chosen[field.name] or {}) > 0 or (state.own[field.name] or '') ~= ''
end

--- Go to the next field, or with -1 to the previous one.
---@param q sanderling.session.state.Question
---@param step 1|-1
---@return boolean there is one
function M.go(q, step)
  local _, index, count = M.field(q)
  local next_index = index + step
  if next_index < 1 or next_index > count then
    return false
  end
  state_of(q).index = next_index
  return true
end

--- Return the values to send: the choices by the field's name, one in each line, and the user's own words.
---@param q sanderling.session.state.Question
---@return table<string, string>
function M.values(q)
  local values, state = {}, state_of(q)
  for _, field in ipairs(assert(q.event.fields)) do
    local chosen, own = state.chosen[field.name] or {}, state.own[field.name] or ''
    values[field.name] = #chosen > 0 and table.concat(chosen, '\n') or nil
    values[field.name .. OWN_WORDS] = own ~= '' and own or nil
  end
  return values
end

return M
