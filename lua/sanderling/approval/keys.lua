--- The keys of the float.
local M = {}

local api = vim.api
local answers = require('sanderling.approval.answers')
local choosing = require('sanderling.approval.choosing')
local config = require('sanderling.config')
local diff = require('sanderling.transcript.diff')
local files = require('sanderling.access.files')
local float = require('sanderling.approval.float')
local queue = require('sanderling.approval.queue')
local page = require('sanderling.access.page')
local words = require('sanderling.ui.words')

--- Close the float without an answer. The question stays pending.
local function leave()
  float.close()
  float.set_left()
end

---@param step -1|1
local function go_to_question(step)
  local _, index = queue.question()
  queue.show(index + step)
  float.update()
end

--- Show the whole subject, or the file in question, in a tab page.
local function open_whole()
  local q = assert(queue.question())
  local event = q.event
  local filetype, path = event.filetype or '', event.path or ''
  if filetype ~= 'diff' and files.open_in_tab(path) then
    return
  end
  local buf = page.new_buffer('question', words.lines_of(event.subject))
  vim.b[buf].sanderling_subject_of = event.id
  vim.cmd(('tab sbuffer %d'):format(buf))
  diff.set_syntax(buf, filetype, 1)
  page.set_keys(buf, 'whole', {
    close = function()
      api.nvim_buf_delete(buf, { force = true }) -- also if no other window is left
      if queue.question() == q then
        answers.focus() -- where `p` was pressed: the answer comes next
      end
    end,
  })
end

--- Ignore keys that were typed before the question was visible.
---@param fn fun(q: sanderling.session.state.Question)
---@return fun(lhs?: string)
local function answering(fn)
  return function(lhs)
    local q = queue.question()
    if q and float.is_meant(lhs) then
      fn(q)
    end
  end
end

---@param choice 'once'|'session'|'always'
local function allowing(choice)
  return answering(function(q)
    answers.allow_one(q, choice)
  end)
end

---@param is_all? boolean with the other requests of the same message
local function denying(is_all)
  return answering(function(q)
    answers.deny_one(q, '', is_all)
  end)
end

---@param is_all? boolean
local function denying_because(is_all)
  return answering(function(q)
    answers.deny_because(q, is_all)
  end)
end

--- Run `fn` on a question of the model.
---@param fn fun(q: sanderling.session.state.Question, lhs?: string)
---@return fun(lhs?: string)
local function choosing_in(fn)
  return function(lhs)
    local q = queue.question()
    if q and choosing.is_for(q) and float.is_meant(lhs) then
      fn(q, lhs)
    end
  end
end

---@type table<string, fun(lhs?: string)>
local actions = {
  question_once = allowing('once'),
  question_session = allowing('session'),
  question_tree = answering(function(q)
    if queue.child_of(q.event) then
      answers.allow_one(q, 'session', true)
    end
  end),
  question_always = allowing('always'),
  question_deny = denying(),
  question_reason = denying_because(),
  question_all = denying(true), -- the same as `question_deny` for a single request
  question_all_reason = denying_because(true),
  question_option = answering(answers.choose_option),
  question_choice = choosing_in(function(q, lhs)
    local number = lhs and choosing.number_of(lhs) or vim.v.count
    answers.choose(q, number)
  end),
  question_send = choosing_in(answers.send_choice),
  question_comment = choosing_in(function(q)
    answers.comment(q)
  end),
  question_back = choosing_in(answers.go_back),
  question_next = function()
    go_to_question(1)
  end,
  question_previous = function()
    go_to_question(-1)
  end,
  question_whole = open_whole,
  question_later = leave,
}

---@param buf integer
local function set(buf)
  local function disable(lhs, why)
    vim.keymap.set('n', lhs, '<Nop>', { buffer = buf, nowait = true, desc = 'Agent: ' .. why })
  end
  for _, lhs in ipairs(config.list_keys(config.options.keys.question)) do
    disable(lhs, 'already in the question')
  end
  for option in pairs(actions) do
    for _, lhs in ipairs(config.list_keys(config.options.keys[option])) do
      disable('<LocalLeader>' .. lhs, 'no key of the chat answers a question')
    end
  end
  page.set_keys(buf, 'question', actions)
end

--- Call `fn` with each key that types a visible character, except `:`, which begins a command.
---@param fn fun(lhs: string, character: string)
local function each_character(fn)
  for code = ('!'):byte(), ('~'):byte() do
    local character = string.char(code)
    if character ~= ':' then
      fn(vim.fn.keytrans(character), character)
    end
  end
end

--- Remove the keys that begin with a visible character.
---@param buf integer
local function clear_characters(buf)
  for _, map in ipairs(api.nvim_buf_get_keymap(buf, 'n')) do
    if map.lhs:find('^[^<]') or vim.startswith(map.lhs, '<lt>') then
      api.nvim_buf_del_keymap(buf, 'n', map.lhs)
    end
  end
end

---@type { buf: integer, is_text: boolean }? the float's buffer, and whether typing in it begins an answer
local given

--- Set the keys for a question. Typing begins the answer to a question without choices.
---@param buf integer
---@param q sanderling.session.state.Question
function M.set(buf, q)
  local is_text = choosing.is_text(q)
  if given and given.buf == buf and given.is_text == is_text then
    return
  elseif given and given.buf == buf and given.is_text then
    clear_characters(buf)
    files.guard(buf)
  end
  given = { buf = buf, is_text = is_text }
  set(buf)
  if is_text then
    clear_characters(buf) -- `g?` would keep `g` waiting
    each_character(function(lhs, character)
      local begin = answering(function(shown)
        answers.comment(shown, character)
      end)
      vim.keymap.set('n', lhs, function()
        begin(character)
      end, { buffer = buf, nowait = true, desc = 'Agent: begin the answer' })
    end)
  end
end

return M
