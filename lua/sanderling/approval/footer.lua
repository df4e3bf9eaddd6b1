--- The footer of a question: its keys, and what they do.
local M = {}

local api = vim.api
local anywhere = require('sanderling.approval.anywhere')
local choosing = require('sanderling.approval.choosing')
local config = require('sanderling.config')
local queue = require('sanderling.approval.queue')
local words = require('sanderling.ui.words')

local TITLE_CELLS = { 32, 24, 18, 12, 8, 0 } -- of an answer in another agent's words, from wide to narrow

---@alias sanderling.approval.Words table<string, string> what each key does, by its option without `question_`

local long = { ---@type sanderling.approval.Words
  once = 'allow once',
  session = 'allow for this session',
  tree = 'for the parent and all children',
  always = 'always (shows the rule)',
  deny = 'deny',
  reason = 'deny with a reason',
  later = 'later',
  all = 'deny',
  all_reason = 'the same, with a reason',
  option = 'all answers',
  whole = 'full view',
  next = 'next',
  choice = 'answer',
  send = 'send',
  comment = 'own words',
  back = 'back',
  show_keys = 'all keys',
}
local short = vim.tbl_extend('force', long, {
  once = 'once',
  session = 'session',
  tree = 'all children',
  always = 'always',
  reason = 'reason',
  all_reason = 'reason',
  option = 'answers',
  show_keys = 'keys',
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

local ANSWERS = { 'once', 'session', 'tree', 'always', 'deny', 'all' }

--- The words, from wide to narrow.
---@type sanderling.approval.Words[]
local key_words = {
  long,
  short,
  only('reason', 'later', 'choice', 'send', 'comment', unpack(ANSWERS)),
  only('choice', 'send', unpack(ANSWERS)),
  only('deny', 'all'),
  {},
}

--- Keys that are left out where there is no room for a word.
local EXTRA = { 'all_reason', 'option', 'whole', 'next' }

--- Keys with a line each while the user is in the float and there is room.
local LISTED =
  { 'once', 'session', 'tree', 'always', 'deny', 'reason', 'later', 'all', 'all_reason' }

--- The words for keys in other kinds of questions, where their meaning differs.
---@type table<string, sanderling.approval.Words>
local other_words = {
  server = { once = 'start', always = 'always', deny = 'deny' },
  form = { once = 'fill in', deny = 'decline' },
  link = { once = 'open', deny = 'decline' },
  question = { deny = 'dismiss' },
  plan = { choice = 'choose', comment = 'comment', deny = 'keep planning' },
}

---@type sanderling.approval.Words
local OF_CHILD = { session = 'for this child' }

---@param q sanderling.session.state.Question
---@return sanderling.approval.Words words that differ from the usual ones
local function words_of(q)
  local others = other_words[q.event.kind] or queue.child_of(q.event) and OF_CHILD or {}
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

--- Return words on the requests of the same message that are denied together: pending ones, or later ones.
---@param q sanderling.session.state.Question
---@return string
local function also_denied(q)
  local count = #vim.tbl_filter(function(other)
    return other.session_id == q.session_id and other.event.is_of_several or false
  end, queue.list())
  return count > 1 and (' all %d'):format(count) or ' the rest, too'
end

--- Return what the keys that answer from any window do in a question of the model: only dismiss it.
---@param q sanderling.session.state.Question
---@return table<string, string|false> by option
function M.words_anywhere(q)
  local by_option = { answer_reason = false, answer_hunk = false } -- there is no room for one, and the body names the other
  if choosing.is_for(q) then
    by_option.answer_once, by_option.answer_deny = false, other_words[q.event.kind].deny
  end
  return by_option
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
  local has_tree = queue.child_of(q.event) ~= nil
  local options = vim.tbl_filter(function(choice)
    return vim.list_contains(q.event.choices, choice == 'tree' and has_tree and 'session' or choice)
  end, { 'once', 'session', 'tree', 'always' })
  vim.list_extend(options, other_words[q.event.kind] and { 'deny' } or { 'deny', 'reason' })
  options[#options + 1] = 'later'
  vim.list_extend(options, q.event.is_of_several and { 'all', 'all_reason' } or {})
  if #(q.event.options or {}) > 1 then
    options[#options + 1] = 'option'
  end
  options[#options + 1] = 'whole'
  options[#options + 1] = #queue.list() > 1 and 'next' or nil
  options[#options + 1] = 'show_keys'
  return options
end

---@param q sanderling.session.state.Question
---@param option string
---@return string? as the user types it; nil if there is none
local function key_of(q, option)
  if option == 'choice' then
    return choosing.keys(q)
  end
  local keys = config.options.keys
  local chosen =
    config.list_keys(option == 'show_keys' and keys.show_keys or keys['question_' .. option])
  if choosing.is_text(q) then -- letters begin the answer
    chosen = vim.tbl_filter(function(lhs)
      return lhs:find('^<.') ~= nil
    end, chosen)
    chosen[1] = chosen[1] or option == 'deny' and anywhere.key_of('answer_deny') or nil
  end
  local name = config.key_name(chosen, '')
  return name ~= '' and name or nil
end

---@param q sanderling.session.state.Question
---@param option string
---@param word_of sanderling.approval.Words
---@param cells integer for each answer in another agent's words
---@return string? what its key does, nil if there is no room for it
local function word_in(q, option, word_of, cells)
  local others = own_words(q.event, cells) or words_of(q)
  local word = word_of[option] and (others[option] or word_of[option])
  return word and option == 'all' and word .. also_denied(q) or word
end

--- Return the listed keys that apply, each with its word.
---@param q sanderling.session.state.Question
---@param width integer
---@return [string, string][]
function M.list(q, width)
  local list = {}
  for _, option in ipairs(choosing.is_for(q) and {} or options_of(q)) do
    local key = vim.list_contains(LISTED, option) and key_of(q, option)
    if key then
      local room = math.max(width - api.nvim_strwidth(key) - 1, 0)
      list[#list + 1] = { key, words.fitting(assert(word_in(q, option, long, room)), room) }
    end
  end
  return list
end

--- Return the keys and what they do, in as many words as fit.
---@param q sanderling.session.state.Question
---@param width integer
---@param has_list boolean the float lists some of them
---@return [string, string][]
function M.keys_line(q, width, has_list)
  local options = vim.tbl_filter(function(option)
    local is_listed = has_list and vim.list_contains(LISTED, option)
    return not is_listed and key_of(q, option) ~= nil
  end, options_of(q))
  local chunks
  for level, word_of in ipairs(key_words) do
    local cells = 1
    chunks = {}
    for _, option in ipairs(options) do
      local key = assert(key_of(q, option))
      local word = word_in(q, option, word_of, TITLE_CELLS[level])
      if word or not vim.list_contains(EXTRA, option) then
        local text = word and ' ' .. word or ''
        chunks[#chunks + 1] = { ' ' .. key, 'AgentApprovalKey' }
        chunks[#chunks + 1] = { text, 'AgentApproval' }
        cells = cells + api.nvim_strwidth(key .. text) + 1
      end
    end
    chunks[#chunks + 1] = { ' ', 'AgentApproval' }
    if cells <= width then
      break
    end
  end
  return chunks
end

return M
