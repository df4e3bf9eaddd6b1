--- The keys of the float.
local M = {}

local api = vim.api
local answers = require('sanderling.approval.answers')
local choosing = require('sanderling.approval.choosing')
local config = require('sanderling.config')
local diff = require('sanderling.transcript.diff')
local files = require('sanderling.access.files')
local float = require('sanderling.approval.float')
local message = require('sanderling.ui.message')
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
    message.ask({ prompt = 'Deny, because: ' }, function(reason)
      if reason then
        answers.deny_one(q, words.trimmed(reason), is_all)
      end
    end)
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
  question_comment = choosing_in(answers.comment),
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
function M.set(buf)
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

return M
