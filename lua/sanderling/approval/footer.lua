--- The footer of a question: its keys, and what they do.
local M = {}

local api = vim.api
local choosing = require('sanderling.approval.choosing')
local config = require('sanderling.config')
local queue = require('sanderling.approval.queue')
local words = require('sanderling.ui.words')

local TITLE_CELLS = { 32, 24, 18, 12, 8, 0 } -- of an answer in another agent's words, from wide to narrow

---@alias sanderling.approval.Words table<string, string> what each key does, by its option without `question_`

local long = { ---@type sanderling.approval.Words
  once = 'allow once',
  session = 'for the session',
  always = 'always',
  deny = 'deny',
  reason = 'deny + reason',
  alone = 'deny only this',
  alone_reason = '+ reason',
  option = 'all answers',
  whole = 'full view',
  later = 'later',
  next = 'next',
  choice = 'answer',
  send = 'send',
  comment = 'own words',
  back = 'back',
}
local short = vim.tbl_extend('force', long, {
  once = 'once',
  session = 'session',
  reason = '+ reason',
  alone = 'only this',
  option = 'answers',
})

---@param ... string options
---@return sanderling.approval.Words
local function only(...)
  local some = {}
  for _, option in ipairs({ ... }) do
    some[option] = short[option]
  end
  return some
end

--- The words, from wide to narrow.
---@type sanderling.approval.Words[]
local key_words = {
  long,
  short,
  only('once', 'session', 'always', 'deny', 'reason', 'alone', 'choice', 'send', 'comment'),
  only('once', 'session', 'always', 'deny', 'alone', 'choice', 'send'),
  only('deny', 'alone'),
  {},
}

--- The words for keys in other kinds of questions, where their meaning differs.
---@type table<string, sanderling.approval.Words>
local other_words = {
  server = { once = 'start', always = 'always', deny = 'deny' },
  form = { once = 'fill in', deny = 'decline' },
  link = { once = 'open', deny = 'decline' },
  question = { deny = 'dismiss' },
  plan = { choice = 'choose', comment = 'comment', deny = 'keep planning' },
}

---@param q sanderling.session.state.Question
---@return sanderling.approval.Words words that differ from the usual ones
local function words_of(q)
  local others = other_words[q.event.kind] or {}
  local kind = choosing.is_for(q) and choosing.field(q).kind
  if kind == 'choices' then
    return vim.tbl_extend('force', others, { choice = 'mark' })
  end
  return kind == 'string' and vim.tbl_extend('force', others, { send = 'write an answer' })
    or others
end

--- Return another agent's titles for the keys that give its answers: the first of each kind.
---@param event sanderling.ApprovalRequested
---@param cells integer that each may take
---@return sanderling.approval.Words?
local function own_words(event, cells)
  local found = event.options and {} ---@type sanderling.approval.Words?
  for _, option in ipairs(event.options or {}) do
    found[option.choice] = found[option.choice]
      or words.fitting(words.first_line(option.title), cells)
  end
  return found
end

--- Return words on what is denied as well, if anything: other pending requests, or later ones.
---@param q sanderling.session.state.Question
---@return string
local function also_denied(q)
  if not q.event.is_of_several then
    return ''
  end
  local count = #vim.tbl_filter(function(other)
    return other.session_id == q.session_id and other.event.is_of_several or false
  end, queue.list())
  return count > 1 and (' all %d'):format(count) or ' the rest, too'
end

--- Return what the keys that answer from any window do in a question of the model: only dismiss it.
---@param q sanderling.session.state.Question
---@return table<string, string|false> by option
function M.words_anywhere(q)
  local words_ = choosing.is_for(q)
      and { answer_once = false, answer_deny = other_words[q.event.kind].deny }
    or {}
  return vim.tbl_extend('error', words_, { answer_hunk = false }) -- the body names it
end

--- Return the options of the keys that apply to a question of the model.
---@param q sanderling.session.state.Question
---@return string[]
local function options_of_choosing(q)
  local field, index = choosing.field(q)
  local has_choices = field.kind ~= 'string'
  local options = {} ---@type string[]
  ---@param option string
  ---@param applies boolean
  local function add(option, applies)
    options[#options + 1] = applies and option or nil
  end
  add('choice', has_choices)
  add('send', field.kind ~= 'choice')
  add('comment', has_choices and q.event.tool == 'ask_user')
  add('back', index > 1)
  add('deny', q.event.kind == 'question')
  return options
end

---@param q sanderling.session.state.Question
---@return string[] options of the keys that apply
local function options_of(q)
  if choosing.is_for(q) then
    local options = options_of_choosing(q)
    return vim.list_extend(options, { 'whole', 'later', #queue.list() > 1 and 'next' or nil })
  end
  local options = vim.tbl_filter(function(choice)
    return vim.list_contains(q.event.choices, choice)
  end, { 'once', 'session', 'always' })
  vim.list_extend(options, other_words[q.event.kind] and { 'deny' } or { 'deny', 'reason' })
  vim.list_extend(options, q.event.is_of_several and { 'alone', 'alone_reason' } or {})
  if #(q.event.options or {}) > 1 then
    options[#options + 1] = 'option'
  end
  return vim.list_extend(options, { 'whole', 'later', #queue.list() > 1 and 'next' or nil })
end

---@param q sanderling.session.state.Question
---@param option string
---@return string? as the user types it; nil if there is none
local function key_of(q, option)
  if option == 'choice' then
    return choosing.keys(q)
  end
  local name = config.key_name(config.options.keys['question_' .. option], '')
  return name ~= '' and name or nil
end

--- Return the keys and what they do, in as many words as fit.
---@param q sanderling.session.state.Question
---@param width integer
---@return [string, string][]
function M.keys_line(q, width)
  local chunks
  for level, word_of in ipairs(key_words) do
    local cells = 1
    chunks = {}
    local has_key = function(option)
      return key_of(q, option) ~= nil
    end
    for _, option in ipairs(vim.tbl_filter(has_key, options_of(q))) do
      local key = assert(key_of(q, option))
      local others = own_words(q.event, TITLE_CELLS[level]) or words_of(q)
      local word = word_of[option] and ' ' .. (others[option] or word_of[option]) or ''
      word = word .. (option == 'deny' and word_of.deny and also_denied(q) or '')
      chunks[#chunks + 1] = { ' ' .. key, 'AgentApprovalKey' }
      chunks[#chunks + 1] = { word, 'AgentApproval' }
      cells = cells + api.nvim_strwidth(key .. word) + 1
    end
    chunks[#chunks + 1] = { ' ', 'AgentApproval' }
    if cells <= width then
      break
    end
  end
  return chunks
end

return M
