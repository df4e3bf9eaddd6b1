--- Answers to questions. An answer counts only when its question was on the screen for a moment.
local M = {}

local float = require('sanderling.approval.float')
local form = require('sanderling.approval.form')
local lazy = require('sanderling.ui.lazy')
local links = require('sanderling.access.links')
local listeners = lazy('sanderling.editing.listeners')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local queue = require('sanderling.approval.queue')
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
---@param answer { answer: 'once'|'session'|'always'|'deny'|'cancel'|'again', reason?: string, rule?: string, is_alone?: boolean, values?: table<string, string>, review?: sanderling.Review, option?: string }
function M.send(q, answer)
  if not vim.list_contains(queue.list(), q) then
    tell('This question is no longer open.')
    return
  end
  if answer.answer ~= 'deny' and (q.event.path or '') ~= '' then
    listeners.allow(q.event.id, q.session_id)
  end
  local is_yes = vim.list_contains(M.choices(), answer.answer)
  live.find(q.session_id):act({
    type = 'answer_approval',
    id = q.event.id,
    answer = answer.answer,
    reason = answer.reason or '',
    rule = answer.rule or '',
    is_alone = answer.is_alone,
    option = answer.option or '',
    values = answer.values,
    review = answer.review or is_yes and queue.review.answer_of(q) or nil,
  }, { type = 'local_answered', id = q.event.id, answer = answer.answer })
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

--- Allow the request. For `always`, show the rule first, and let the user change it.
---@param q sanderling.session.state.Question
---@param choice 'once'|'session'|'always'
function M.allow_one(q, choice)
  local kind = q.event.kind
  if not vim.list_contains(q.event.choices, choice) then
    tell(refusals[choice])
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
      M.send(q, { answer = 'session', rule = rule })
    end)
  else
    M.send(q, { answer = choice })
  end
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
---@param is_alone? boolean do not deny other requests of the same message
function M.deny(reason, is_alone)
  local q = question_to_answer()
  if q then
    M.send(q, { answer = 'deny', reason = reason or '', is_alone = is_alone or nil })
  end
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
