--- The hint in an empty prompt: what its keys do at the moment.
local M = {}

local key_table = require('sanderling.ui.keys')

--- Texts by situation, from wide to narrow. Braces contain key options; `send` is the send key of the current mode. A text
--- is left out if one of its keys is not set.
---@type table<string, string[]>
local texts = {
  idle = {
    'Ask anything: {send} sends; i types, and then / commands, @ files, !command',
    'Ask anything: {send} sends',
    'Ask anything',
  },
  typing = {
    'Ask anything: {send} sends, {line_break} breaks the line; / commands, @ files, !command',
    'Ask anything: {send} sends; / commands, @ files, !command',
    'Ask anything: {send} sends',
    'Ask anything',
  },
  in_turn = {
    'The next prompt: {send} queues, {steer} steers the turn, {stop} stops it',
    '{send} queues, {steer} steers, {stop} stops',
    '{send} queues, {stop} stops',
    '{stop} stops',
  },
  chosen = {
    'Question pending: {question} goes there to answer it, {answer_deny} dismisses it',
    '{question} answers, {answer_deny} dismisses',
    'Question pending',
  },
  planned = {
    'Plan pending: {question} goes there to accept it, {answer_deny} keeps planning',
    '{question} answers, {answer_deny} keeps planning',
    'Plan pending',
  },
  asked = {
    'Question pending: {question} goes there to answer it, {answer_deny} denies it',
    '{question} answers, {answer_deny} denies',
    'Question pending',
  },
  edit = {
    'How to change these lines: {send} sends',
    '{send} sends',
  },
  comment = {
    'Your comment: {send} keeps it for :AgentReview send',
    '{send} keeps it',
  },
  held = {
    '{send} sends the held prompts, {waiting} shows them',
    '{send} sends held prompts',
  },
}

--- Situations by the kind of the pending question.
---@type table<string, string>
local kinds = { question = 'chosen', plan = 'planned' }

---@param state? sanderling.session.state.State
---@return string
function M.kind_of(state)
  if not state then
    return 'idle'
  elseif #state.questions > 0 then
    return kinds[state.questions[1].event.kind] or 'asked'
  elseif state.waiting.is_held and #state.waiting.queued + #state.waiting.steering > 0 then
    return 'held'
  end
  return state.is_in_turn and 'in_turn' or 'idle'
end

--- Commands to name instead of keys that the user has disabled.
---@type table<string, string>
local commands = {
  send_normal = ':Send',
  send_insert = ':Send',
  steer = ':Agent steer',
  stop = ':AgentStop',
  answer_deny = ':AgentDeny',
  question = ':Agent question',
  waiting = ':Agent queue',
}

--- Return the key of an option, or the equivalent command. Keys that answer questions are not set where the user has
--- mapped them.
---@param option string
---@return string? nil if it has neither
local function name_of(option)
  local name = key_table.name(key_table.chosen[option], commands[option] or '')
  if name == '' then
    return nil
  end
  local is_taken = vim.startswith(option, 'answer_') and key_table.is_taken('n', name)
  return is_taken and commands[option] or name -- the question is drawn before its keys are set
end

--- Does the key of an option, which has this name, type text in insert mode?
---@param option string
---@param name string
---@return boolean
local function is_text(option, name)
  local place = vim.startswith(option, 'answer_') and 'anywhere' or 'prompt'
  return name == commands[option] or not key_table.modes_of(option, place):find('i')
end

--- Return `text` with the names of its keys in the current mode, nil if one of them is not set.
---@param text string
---@param is_insert boolean
---@return string?
local function with_names(text, is_insert)
  local is_whole = true
  local named = text:gsub('{([%w_]+)}', function(option)
    if option == 'send' then
      local has_key = #key_table.list(key_table.chosen.send_insert) > 0
      option = is_insert and has_key and 'send_insert' or 'send_normal'
    end
    local name = name_of(option)
    is_whole = is_whole and name ~= nil
    return name and (is_insert and is_text(option, name) and '<Esc>' .. name or name)
  end)
  return is_whole and named or nil
end

--- Return the longest text that fits into `width` cells, else the shortest one.
---@param kind string
---@param width integer
---@param is_insert boolean the user is in insert mode in the prompt
---@return string
function M.text(kind, width, is_insert)
  local text = ''
  for _, each in ipairs(texts[kind == 'idle' and is_insert and 'typing' or kind]) do
    text = with_names(each, is_insert) or text
    if text ~= '' and vim.api.nvim_strwidth(text) <= width then
      break
    end
  end
  return text
end

return M
