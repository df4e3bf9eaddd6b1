--- The hint in an empty prompt: what its keys do at the moment.
local M = {}

local config = require('sanderling.config')

--- Texts by situation, from wide to narrow. Braces contain key options; `send` is the send key of the current mode.
---@type table<string, string[]>
local texts = {
  idle = {
    'Ask anything: {send_normal} sends, {send_insert} in insert mode; / commands, @ files, !command',
    'Ask anything: {send_normal} sends, {send_insert} in insert mode',
    'Ask anything: {send} sends',
    'Ask anything',
  },
  in_turn = {
    'Keep typing: {send} queues, {steer} steers the turn, {stop} stops it',
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
---@return string
local function name_of(option)
  local name = config.key_name(config.options.keys[option], commands[option])
  if not vim.startswith(option, 'answer_') or vim.fn.mapcheck(name, 'n') == '' then
    return name -- the question is drawn before its keys are set
  end
  local desc = vim.fn.maparg(name, 'n', false, true).desc or ''
  return vim.startswith(desc, 'Agent: ') and name or commands[option]
end

--- Return the longest text that fits into `width` cells, else the shortest one.
---@param kind string
---@param width integer
---@param is_insert boolean the user is in insert mode in the prompt
---@return string
function M.text(kind, width, is_insert)
  local text = ''
  local has_key = config.key_name(config.options.keys.send_insert, '') ~= ''
  local send = is_insert and has_key and '{send_insert}' or '{send_normal}'
  for _, each in ipairs(texts[kind]) do
    text = each:gsub('{send}', send):gsub('{([%w_]+)}', name_of)
    if vim.api.nvim_strwidth(text) <= width then
      break
    end
  end
  return text
end

return M
