--- The words in an empty prompt: what can be done just now.
local M = {}

local config = require('sanderling.config')

--- The texts that can be, from wide to narrow; names of keys stand in braces, `send` for the one of the mode.
---@type table<string, string[]>
local texts = {
  idle = {
    'Ask anything: {send_normal} sends, {send_insert} in insert mode; / commands, @ files, !command',
    'Ask anything: {send_normal} sends, {send_insert} in insert mode',
    'Ask anything: {send} sends',
    'Ask anything',
  },
  in_turn = {
    'Write on: {send} queues, {steer} steers the turn, {stop} stops it',
    '{send} queues, {steer} steers, {stop} stops',
    '{send} queues, {stop} stops',
    '{stop} stops',
  },
  asked = {
    'A question waits: {approvals} goes there to answer it, {answer_deny} denies it',
    '{approvals} answers, {answer_deny} denies',
    'A question waits',
  },
  held = {
    '{send} sends the prompts that wait, {waiting} shows them',
    '{send} sends what waits',
  },
}

---@param state? sanderling.session.state.State
---@return string
local function kind_of(state)
  if not state then
    return 'idle'
  elseif #state.questions > 0 then
    return 'asked'
  elseif state.waiting.is_held and #state.waiting.queued + #state.waiting.steering > 0 then
    return 'held'
  end
  return state.is_in_turn and 'in_turn' or 'idle'
end

--- The commands that do the same as keys, for who has given these up.
---@type table<string, string>
local commands = {
  send_normal = ':Send',
  send_insert = ':Send',
  steer = ':AgentSteer',
  stop = ':AgentStop',
  answer_deny = ':AgentDeny',
  approvals = ':AgentApprovals',
  waiting = ':AgentQueue',
}

--- The key of an option, or the command that does the same. Those that answer questions are set where nobody has a map on them.
---@param option string
---@return string
local function name_of(option)
  local name = config.key_name(config.options.keys[option], commands[option])
  if not vim.startswith(option, 'answer_') or vim.fn.mapcheck(name, 'n') == '' then
    return name -- it may be set in a moment only: the question is drawn first
  end
  local desc = vim.fn.maparg(name, 'n', false, true).desc or ''
  return vim.startswith(desc, 'Agent: ') and name or commands[option]
end

--- The longest text that fits into `width` cells, or else the shortest.
---@param state? sanderling.session.state.State of the session; nil: it has none yet
---@param width integer
---@param is_insert boolean the person is in insert mode there
---@return string
function M.text(state, width, is_insert)
  local text = ''
  local has_key = config.key_name(config.options.keys.send_insert, '') ~= ''
  local send = is_insert and has_key and '{send_insert}' or '{send_normal}'
  for _, each in ipairs(texts[kind_of(state)]) do
    text = each:gsub('{send}', send):gsub('{([%w_]+)}', name_of)
    if vim.api.nvim_strwidth(text) <= width then
      break
    end
  end
  return text
end

return M
