--- A review round: the open comments become one prompt, and its turn answers them by number. Whether a comment was
--- addressed is computed: the journal says what the turn changed, and the model says what it did.
local M = {}

local answers = require('sanderling.approval.answers')
local anchor = require('sanderling.comments.anchor')
local ask = require('sanderling.host.ask')
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local disk = require('sanderling.editing.disk')
local edits = require('sanderling.editing.hunks')
local live = require('sanderling.session.live')
local message = require('sanderling.ui.message')
local place = require('sanderling.comments.place')
local queue = require('sanderling.approval.queue')
local store = require('sanderling.comments.store')
local words = require('sanderling.ui.words')

local MAX_LINES = 60 -- that the prompt repeats of the text of a comment
local HEAD = 'My review comments:'
local TAIL = 'Deal with each comment. Then answer each in a line of its own that begins with its number, '
  .. 'such as "1. ": what you changed, or why you changed nothing.'

---@class (exact) sanderling.comments.round.Sent
---@field comment sanderling.comments.Comment
---@field first integer when it was sent
---@field last integer
---@field text? string[] of its file then

---@class (exact) sanderling.comments.round.Round
---@field prompt string
---@field sent sanderling.comments.round.Sent[] by number
---@field turn? string that answers it, once it has begun
---@field skipped integer lines of the turn's text from before it

---@type table<string, sanderling.comments.round.Round[]> by session
local rounds = {}

-- the prompt ----------------------------------------------------------------------------------------------------------

---@param lines string[]
---@return string a fence that no line ends
local function fence_for(lines)
  local longest = 2
  for _, line in ipairs(lines) do
    for run in line:gmatch('`+') do
      longest = math.max(longest, #run)
    end
  end
  return ('`'):rep(longest + 1)
end

--- Return the text that a comment is about, in a fence. That of a finding is left out: the model has chosen the place, so
--- it may be in a file that the model must not read, and the user may never have seen it.
---@param comment sanderling.comments.Comment
---@return string[]
local function quoted(comment)
  if comment.is_finding then
    return {}
  end
  local shown = vim.list_slice(comment.lines, 1, MAX_LINES)
  local fence = fence_for(shown)
  local lines = vim.list_extend({ fence }, shown)
  if comment.last - comment.first + 1 > #shown then
    lines[#lines + 1] = ('(%d more lines)'):format(comment.last - comment.first + 1 - #shown)
  end
  lines[#lines + 1] = fence
  return lines
end

---@param comment sanderling.comments.Comment
---@param number integer
---@return string[]
local function part(comment, number)
  local range = comment.first == comment.last and ('%d'):format(comment.first)
    or ('%d-%d'):format(comment.first, comment.last)
  local name = words.plain(comment.name) -- in one line, or it could contain instructions
  local where = name == store.MESSAGE and name or ('%s:%s'):format(name, range)
  local lines = { '', ('%d. %s'):format(number, where) }
  vim.list_extend(lines, quoted(comment))
  return vim.list_extend(lines, vim.split(comment.text, '\n', { plain = true }))
end

--- Return the prompt for comments, numbered in their order.
---@param comments sanderling.comments.Comment[]
---@return string[]
function M.prompt(comments)
  local lines = { HEAD }
  for number, comment in ipairs(comments) do
    vim.list_extend(lines, part(comment, number))
  end
  return vim.list_extend(lines, { '', TAIL })
end

-- sending -------------------------------------------------------------------------------------------------------------

--- Is the prompt still to be answered: not sent yet, waiting, or in its turn?
---@param session_id string
---@param round sanderling.comments.round.Round
---@return boolean
local function is_under_way(session_id, round)
  local session = live.find(session_id)
  return session ~= nil and (round.turn ~= nil or session:is_waiting(round.prompt))
end

--- Open the comments again whose prompt the user has taken back.
local function reopen_withdrawn()
  for session_id, list in pairs(rounds) do
    rounds[session_id] = vim.tbl_filter(function(round)
      local is_kept = is_under_way(session_id, round)
      for _, sent in ipairs(is_kept and {} or round.sent) do
        place.change(sent.comment, { state = 'open', number = vim.NIL })
      end
      return is_kept
    end, list)
  end
end

--- Return the question whether the user accepts the plan, if the session is waiting for the answer.
---@param session sanderling.chat.session.Session
---@return sanderling.session.state.Question?
local function plan_of(session)
  return vim.iter(queue.list()):find(function(question)
    return question.session_id == session.id and question.event.kind == 'plan'
  end)
end

--- Note that comments leave with `prompt`.
---@param session sanderling.chat.session.Session
---@param comments sanderling.comments.Comment[]
---@param prompt string
---@param turn? string that has begun
local function begin(session, comments, prompt, turn)
  local skipped = turn and #session.transcript:answer_lines() or 0
  local round = { prompt = prompt, sent = {}, turn = turn, skipped = skipped }
  rounds[session.id] = rounds[session.id] or {}
  table.insert(rounds[session.id], round)
  local texts = {} ---@type table<string, string[]> by path
  for number, comment in ipairs(comments) do
    local path = comment.path
    texts[path] = path ~= '' and (texts[path] or place.text_now(comment)) or nil
    round.sent[number] =
      { comment = comment, first = comment.first, last = comment.last, text = texts[path] }
    place.change(comment, {
      state = 'sent',
      sender = vim.fn.getpid(),
      number = number,
      claim = vim.NIL,
      is_changed = vim.NIL,
    })
  end
end

--- Let the user choose whether to accept the plan with the comments, and answer the question with them.
---@param session sanderling.chat.session.Session
---@param question sanderling.session.state.Question
---@param comments sanderling.comments.Comment[]
---@param prompt string
local function answer_plan(session, question, comments, prompt)
  local field = assert(question.event.fields)[1]
  vim.ui.select(field.choices or {}, {
    prompt = 'Send the comments and:',
    kind = 'sanderling_answer',
    format_item = function(choice)
      return words.plain(choice.title or choice.value)
    end,
  }, function(choice)
    if choice and vim.list_contains(queue.list(), question) then
      begin(session, comments, prompt, session.state.turn)
      local values = { [field.name] = choice.value, [field.name .. '_text'] = prompt }
      answers.send(question, { answer = 'once', values = values })
    end
  end)
end

--- Send the open comments of a project to the current session as one prompt, or as the answer to its plan.
---@param project string
function M.send(project)
  reopen_withdrawn()
  local comments = vim.tbl_filter(function(comment)
    return comment.state == 'open'
  end, place.sorted(store.of(project)))
  if #comments == 0 then
    local has_some = #store.of(project) > 0
    local remedy = has_some and 'To send one again, edit it with :AgentComment.'
      or ':AgentComment makes one.'
    return message.tell('No open comment. ' .. remedy, vim.log.levels.WARN)
  end
  local session = chat.current_session()
  local lines = M.prompt(comments)
  local prompt, plan = table.concat(lines, '\n'), plan_of(session)
  if plan then
    return answer_plan(session, plan, comments, prompt)
  end
  chat.show({ focus = false })
  begin(session, comments, prompt) -- before its turn can start
  if not session:send(lines, { is_verbatim = true }) then
    reopen_withdrawn()
  end
end

-- the answer ----------------------------------------------------------------------------------------------------------

--- Return what an answer says about each number.
---@param lines string[]
---@param count integer of comments
---@return table<integer, string>
function M.claims(lines, count)
  local claims, fence = {}, nil ---@type table<integer, string>, string?
  for _, line in ipairs(lines) do
    local was_code = fence ~= nil
    fence = words.fence_behind(line, fence)
    local number, text = line:match('^[%s#%*%-_>]*(%d+)[%.%):][%*_]*%s+(.*)$')
    local n = not (was_code or fence) and tonumber(number) or 0
    if n >= 1 and n <= count and words.trimmed(text) ~= '' then
      claims[n] = words.trimmed((text:gsub('%*%*', '')))
    end
  end
  return claims
end

--- Did one of the edits change the lines of a comment? What the user changed before or between them moves the lines.
---@param sent sanderling.comments.round.Sent
---@param list sanderling.Edit[] of its file
---@return boolean
function M.was_changed(sent, list)
  local first, last, text = sent.first, sent.last, sent.text
  for _, edit in ipairs(list) do
    if edit.what ~= 'changed' then
      return true
    elseif not text or last < first then -- the user has removed them
      return false
    end
    local before, after = edits.lines_of(edit.before or ''), edits.lines_of(edit.after or '')
    first, last = anchor.follow(first, last, text, before)
    local is_changed ---@type boolean
    first, last, is_changed = anchor.follow(first, last, before, after)
    if is_changed then
      return true
    end
    text = after
  end
  return false
end

--- Return what has changed since a comment was sent, by whomever, where the journal is not here.
---@param sent sanderling.comments.round.Sent
---@return sanderling.Edit[]
local function difference(sent)
  local buf = place.buffer_of(sent.comment)
  if buf then
    disk.refresh(buf)
  end
  local now = place.text_now(sent.comment)
  if not sent.text then
    return {}
  end
  return {
    {
      path = sent.comment.path,
      what = now and 'changed' or 'removed',
      before = table.concat(sent.text, '\n'),
      after = table.concat(now or {}, '\n'),
    },
  }
end

---@param session_id string
---@param round sanderling.comments.round.Round
---@param claims table<integer, string>
---@param is_whole boolean the turn ended by itself
local function settle(session_id, round, claims, is_whole)
  ---@param edits_of fun(sent: sanderling.comments.round.Sent): sanderling.Edit[] of its file
  local function finish(edits_of)
    local changed, in_files, answered = 0, 0, 0
    for number, sent in ipairs(round.sent) do
      local is_changed, claim = M.was_changed(sent, edits_of(sent)), claims[number]
      changed = changed + (is_changed and 1 or 0)
      in_files = in_files + (sent.comment.path ~= '' and 1 or 0)
      answered = answered + (claim and 1 or 0)
      local is_answered = is_whole or is_changed or claim ~= nil
      if sent.comment.state == 'sent' then -- otherwise the user has edited it meanwhile
        place.change(sent.comment, {
          state = is_answered and 'answered' or 'open',
          number = is_answered and number or vim.NIL,
          is_changed = is_answered and is_changed,
          claim = claim or vim.NIL,
        })
      end
    end
    local text = in_files > 0 and ('Lines changed for %d of %d comments.'):format(changed, in_files)
      or ('%d of %d comments answered.'):format(answered, #round.sent)
    message.tell(text .. ' :AgentReview list shows them.')
  end
  local paths = {} ---@type table<string, true>
  for _, sent in ipairs(round.sent) do
    paths[sent.comment.path] = true
  end
  local request =
    { type = 'show_edits', session_id = session_id, turn = round.turn, paths = vim.tbl_keys(paths) }
  ask(request, function(result)
    finish(function(sent)
      return vim.tbl_filter(function(edit)
        return edit.path == sent.comment.path
      end, result.edits)
    end)
  end, function()
    finish(difference)
  end)
end

bus.subscribe('turn_started', function(session_id, event)
  for _, round in ipairs(rounds[session_id] or {}) do
    if event.prompt.text == round.prompt then
      round.turn = event.prompt.id
    end
  end
end)

bus.subscribe('turn_ended', function(session_id, event)
  local session = live.find(session_id)
  rounds[session_id] = vim.tbl_filter(function(round)
    if round.turn and session then
      local answer = vim.list_slice(session.transcript:answer_lines(), round.skipped + 1)
      local claims = M.claims(answer, #round.sent)
      settle(session_id, round, claims, event.stop_reason == 'end_turn')
    end
    return not round.turn
  end, rounds[session_id] or {})
end)

return M
