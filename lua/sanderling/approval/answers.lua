--- Answers to questions. An answer counts only when its question was on the screen for a moment.
local M = {}

local api = vim.api
local choosing = require('sanderling.approval.choosing')
local float = require('sanderling.approval.float')
local form = require('sanderling.approval.form')
local lazy = require('sanderling.ui.lazy')
local links = require('sanderling.access.links')
local listeners = lazy('sanderling.editing.listeners')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local queue = require('sanderling.approval.queue')
local wording = require('sanderling.approval.wording')
local words = require('sanderling.ui.words')

---@return string[]
function M.choices()
  return { 'once', 'session', 'always' }
end

---@param text string
local function tell(text)
  message.tell(text, vim.log.levels.WARN)
end

---@param q sanderling.session.state.Question
---@param answer { answer: 'once'|'session'|'always'|'deny'|'cancel'|'again', reason?: string, rule?: string, for_tree?: boolean, is_alone?: boolean, values?: table<string, string>, review?: sanderling.Review, option?: string }
function M.send(q, answer)
  if not vim.list_contains(queue.list(), q) then
    tell('This question is no longer open.')
    return
  end
  if answer.answer ~= 'deny' and (q.event.path or '') ~= '' then
    listeners.allow(queue.tool_use_of(q.event.id), q.session_id)
  end
  local is_yes = vim.list_contains(M.choices(), answer.answer)
  local review = answer.review or is_yes and queue.review.answer_of(q) or nil
  live.find(q.session_id):act({
    type = 'answer_approval',
    id = q.event.id,
    answer = answer.answer,
    reason = answer.reason or '',
    rule = answer.rule or '',
    for_tree = answer.for_tree,
    is_alone = answer.is_alone,
    option = answer.option or '',
    values = answer.values,
    review = review,
  }, {
    type = 'local_answered',
    id = q.event.id,
    answer = answer.answer,
    is_correction = (answer.reason or '') ~= '' or review ~= nil,
  })
end

---@type table<string, string>
local refusals = {
  once = 'This cannot be allowed.',
  session = '"For the session" is not available for this.',
  always = '"Always" is not available for this.',
}

--- Let the user choose between a rule for this tool and one for all tools of its server, if both are offered.
---@param q sanderling.session.state.Question
---@param prompt string
---@param fn fun(rule: string) gets '' if there is no choice: the proposed rule applies
local function choose_rule(q, prompt, fn)
  local wider = q.event.wider or ''
  if wider == '' then
    fn('')
    return
  end
  local options = { prompt = prompt, kind = 'sanderling_rule', format_item = words.plain }
  vim.ui.select({ q.event.rule, wider }, options, function(rule)
    if rule then
      fn(rule)
    end
  end)
end

-- the model's questions -----------------------------------------------------------------------------------------------

--- Show the next field, or send the answers after the last one.
---@param q sanderling.session.state.Question
local function go_on(q)
  if choosing.go(q, 1) then
    float.update()
  else
    M.send(q, { answer = 'once', values = choosing.values(q) })
  end
end

---@param q sanderling.session.state.Question
local function tell_how(q)
  local keys = choosing.keys(q)
  local is_several = choosing.field(q).kind == 'choices'
  local ways = keys
      and ('%s %s'):format(keys, is_several and 'marks an answer' or 'gives an answer')
    or 'Move to an answer, then press <CR>'
  tell(float.is_focused() and ways .. '.' or wording.ways_in('to answer') .. '.')
end

--- Answer in the user's own words.
---@param q sanderling.session.state.Question
---@param typed? string the beginning
function M.comment(q, typed)
  local prompt = q.event.kind == 'plan' and 'Comment: ' or 'Answer: '
  local default = choosing.own_words(q) .. (typed or '')
  message.ask({ prompt = prompt, default = default }, function(text)
    text = text and words.trimmed(text)
    local is_several = choosing.field(q).kind == 'choices'
    if not text or text == '' and not is_several then
      return
    elseif not vim.list_contains(queue.list(), q) then
      return tell('This question is no longer open.')
    end
    choosing.set_own_words(q, text)
    if is_several then
      float.update()
    else
      go_on(q)
    end
  end)
end

---@param q sanderling.session.state.Question
---@param number integer
function M.choose(q, number)
  if not (choosing.field(q).choices or {})[number] then
    return -- there are fewer
  elseif choosing.choose(q, number) then
    go_on(q)
  else
    float.update()
  end
end

--- Send the marked answers, give the one at the cursor, or ask for one in words.
---@param q sanderling.session.state.Question
function M.send_choice(q)
  local kind, at_cursor = choosing.field(q).kind, float.choice_at_cursor()
  if choosing.is_text(q) then
    M.comment(q)
  elseif kind == 'choices' and choosing.is_answered(q) then
    go_on(q)
  elseif kind == 'choice' and at_cursor then
    M.choose(q, at_cursor)
  else
    tell_how(q)
  end
end

--- Return to the model's previous question.
---@param q sanderling.session.state.Question
function M.go_back(q)
  if choosing.go(q, -1) then
    float.update()
  end
end

-- permissions ---------------------------------------------------------------------------------------------------------

--- Allow the request. For `always`, show the rule first, and let the user change it.
---@param q sanderling.session.state.Question
---@param choice 'once'|'session'|'always'
---@param for_tree? boolean with 'session': for the session that began the task and for all of its children
function M.allow_one(q, choice, for_tree)
  local kind = q.event.kind
  if not vim.list_contains(q.event.choices, choice) then
    tell(refusals[choice])
  elseif choosing.is_for(q) then
    tell_how(q)
  elseif kind == 'form' then
    form.open(q, M.send)
  elseif kind == 'link' then
    links.open(q.event.subject)
    M.send(q, { answer = choice })
  elseif q.event.options then
    M.send(q, { answer = choice }) -- the other agent decides what it covers
  elseif choice == 'always' and kind ~= 'server' then
    choose_rule(q, 'Always allow', function(chosen)
      local default = chosen ~= '' and chosen or q.event.rule or ''
      message.ask({ prompt = 'Always allow: ', default = default }, function(rule)
        if rule and words.trimmed(rule) ~= '' then
          M.send(q, { answer = 'always', rule = words.trimmed(rule) })
        end
      end)
    end)
  elseif choice == 'session' then
    choose_rule(q, 'Allow for the session', function(rule)
      M.send(q, { answer = 'session', rule = rule, for_tree = for_tree })
    end)
  else
    M.send(q, { answer = choice })
  end
end

---@param q sanderling.session.state.Question
---@param reason string that the model reads
---@param is_all? boolean with the other requests of the same message
function M.deny_one(q, reason, is_all)
  local is_alone = q.event.is_of_several and not is_all or nil
  M.send(q, { answer = 'deny', reason = reason, is_alone = is_alone })
end

--- Let the user choose one of the answers that another agent offers.
---@param q sanderling.session.state.Question
function M.choose_option(q)
  if not q.event.options then
    return tell('There are no other answers.')
  end
  vim.ui.select(q.event.options, {
    prompt = 'Answer:',
    kind = 'sanderling_answer',
    format_item = function(option)
      return words.plain(option.title)
    end,
  }, function(option)
    if option then
      M.send(q, { answer = option.choice, option = option.id })
    end
  end)
end

--- Return the question to answer. If it is not on the screen, or has only just appeared, show it and return nil.
---@return sanderling.session.state.Question?
local function question_to_answer()
  if #queue.list() == 0 then
    tell('No question is open.')
    return nil
  elseif not float.is_seen() then
    local text = float.is_left and 'Answer again to confirm.'
      or 'The question has only just appeared. Read it, then answer again.'
    float.is_left = false
    float.update()
    tell(text)
    return nil
  end
  return queue.question()
end

--- Allow the request on the screen.
---@param choice? 'once'|'session'|'always'
function M.allow(choice)
  vim.validate('choice', choice, function(value)
    return value == nil or vim.list_contains(M.choices(), value)
  end, words.one_of(M.choices(), "'"))
  local q = question_to_answer()
  if q then
    M.allow_one(q, choice or 'once')
  end
end

---@param reason? string that the model reads
---@param is_all? boolean with the other requests of the same message
function M.deny(reason, is_all)
  local q = question_to_answer()
  if q then
    M.deny_one(q, reason or '', is_all)
  end
end

---@type { buf: integer, win: integer, is_float: boolean }? the file of the hunk that was visited, and where the user came from
local visited

--- Go to the first hunk of the question, and remember where the user came from.
---@return boolean is_there
function M.go_to_hunk()
  if api.nvim_get_mode().mode:find('^[vV\22]') then
    vim.cmd.normal({ '\27', bang = true })
  end
  local is_float, win = float.is_focused(), float.entered_from() or api.nvim_get_current_win()
  local q = queue.question()
  if not q or not queue.review.go_to(q) then
    return false
  end
  visited = { buf = api.nvim_get_current_buf(), win = win, is_float = is_float }
  return true
end

--- Go to the first hunk of the question, or from its file back to where the user came from.
function M.visit_hunk()
  local back = visited
  visited = nil
  if back and back.buf == api.nvim_get_current_buf() and api.nvim_win_is_valid(back.win) then
    api.nvim_set_current_win(back.win)
    return back.is_float and M.focus() or nil
  end
  if not M.go_to_hunk() then
    tell('This question has no change to review in a file.')
  end
end

--- Deny the request on the screen, with a reason that the user is asked for.
---@param q? sanderling.session.state.Question nil: the one on the screen
---@param is_all? boolean with the other requests of the same message
function M.deny_because(q, is_all)
  q = q or question_to_answer()
  if not q then
    return
  end
  message.ask({ prompt = 'Deny, because: ' }, function(reason)
    if reason then
      M.deny_one(q, words.trimmed(reason), is_all)
    end
  end)
end

--- Focus the float, which has the keys.
function M.focus()
  if #queue.list() == 0 then
    tell('No question is open.')
    return
  end
  float.is_left = false
  float.update()
  float.enter()
end

return M
