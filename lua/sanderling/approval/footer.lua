--- The footer of a question: its keys, and what they do.
local M = {}

local api = vim.api
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
  only('once', 'session', 'always', 'deny', 'reason', 'alone'),
  only('once', 'session', 'always', 'deny', 'alone'),
  only('deny', 'alone'),
  {},
}

--- The words for keys in other kinds of questions, where their meaning differs.
---@type table<string, sanderling.approval.Words>
local other_words = {
  server = { once = 'start', always = 'always', deny = 'deny' },
  form = { once = 'fill in', deny = 'decline' },
  link = { once = 'open', deny = 'decline' },
}

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

---@param q sanderling.session.state.Question
---@return string[] options of the keys that apply
local function options_of(q)
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

---@param option string
---@return string? as the user types it; nil if there is none
local function key_of(option)
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
    for _, option in ipairs(vim.tbl_filter(key_of, options_of(q))) do
      local key = assert(key_of(option))
      local others = own_words(q.event, TITLE_CELLS[level]) or other_words[q.event.kind] or {}
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
