--- Ask mode, in the file itself: what a question proposes stands in the file's buffer, in lines that can be edited, until each hunk
--- is kept or rejected; then the question has its answer. Python writes what was accepted, and nothing else ever reaches the disk.
---
--- A buffer holds the proposal of one question at a time. What else asks about the file, or has no place here, is shown in the
--- float. So is the change of a file that the person closes meanwhile; one whose text becomes another is looked at again.
local M = {}

local api = vim.api
local answers = require('sanderling.approval.answers')
local bus = require('sanderling.host.bus')
local busy = require('sanderling.editing.busy')
local draw = require('sanderling.review.draw')
local describing = require('sanderling.editing.find')
local float = require('sanderling.approval.float')
local hunks = require('sanderling.review.hunks')
local lifting = require('sanderling.review.lifting')
local live = require('sanderling.session.live')
local outcome = require('sanderling.review.outcome')
local place = require('sanderling.review.place')
local wording = require('sanderling.approval.wording')
local writing = require('sanderling.review.writing')

local MAX_LOOKS = 3 -- at a text that becomes another each time

---@class (exact) sanderling.review.asked.Asked
---@field session_id string
---@field id string of the question, which is that of the tool use
---@field buf integer
---@field proposal sanderling.Proposal
---@field source sanderling.review.Source
---@field made table<integer, sanderling.review.outcome.Made> hunks as they were proposed, or rejected, by id
---@field clean? string[] the person's own text where the buffer is not modified
---@field stamp string of the file when it was proposed
---@field is_touched boolean a hunk was decided on
---@field is_answered boolean

---@type table<integer, sanderling.review.asked.Asked> by buffer
local by_buf = {}
---@type table<string, { source: sanderling.review.Source, looks: integer }> by tool use
local known = {}

-- the buffer and its text -----------------------------------------------------------------------------------------------

---@param id string
---@return sanderling.review.asked.Asked?
local function find(id)
  for _, asked in pairs(by_buf) do
    if asked.id == id then
      return asked
    end
  end
end

--- Is it modified, what is proposed aside?
---@param asked sanderling.review.asked.Asked
---@return boolean
local function is_modified(asked)
  if not vim.bo[asked.buf].modified then
    return false
  end
  local _, text = lifting.parts(asked.buf)
  return not vim.deep_equal(text, asked.clean)
end

--- Let 'modified' say whether the person has changed something.
---@param asked sanderling.review.asked.Asked
local function set_modified(asked)
  if vim.bo[asked.buf].modified and not is_modified(asked) then
    vim.bo[asked.buf].modified = false
  end
end

--- Nothing is proposed in the buffer any more.
---@param asked sanderling.review.asked.Asked
---@param is_here_only? boolean
local function forget(asked, is_here_only)
  by_buf[asked.buf] = nil
  writing.release(asked.buf)
  lifting.forget(asked.buf, asked.source, is_here_only)
end

--- Give the person their own text back, with what they have changed.
---@param asked sanderling.review.asked.Asked
local function take_out(asked)
  if by_buf[asked.buf] ~= asked then
    return
  end
  local modified = is_modified(asked)
  draw.keeping_views(asked.buf, function()
    lifting.lift(asked.buf)
  end)
  vim.bo[asked.buf].modified = modified
  forget(asked)
  place.leave(asked.buf, asked.proposal.is_new or false)
end

---@param asked sanderling.review.asked.Asked
local function drop(asked)
  busy.when_possible(asked.buf, function()
    take_out(asked)
  end)
end

-- the answer --------------------------------------------------------------------------------------------------------------

--- The review that goes along with the answer to a question; nothing where the person has left all as it was proposed, or taken all of it out
--- by undo.
---@param q sanderling.session.state.Question
---@return sanderling.Review?
function answers.review_of(q)
  local asked = find(q.event.id)
  return asked and #lifting.parts(asked.buf) > 0 and outcome.review_of(asked) or nil
end

--- Answer, if all hunks are decided on.
---@param asked sanderling.review.asked.Asked
local function answer_if_decided(asked)
  local q = outcome.question_of(asked.session_id, asked.id)
  local is_open = vim.iter(hunks.list(asked.buf)):any(function(hunk)
    return hunk.source == asked.source
  end)
  if not asked.is_touched or asked.is_answered or is_open or not q then
    return
  end
  local review = outcome.review_of(asked)
  local keeps_any = vim.iter(review.hunks):any(function(hunk)
    return hunk.is_kept or false
  end)
  local choice = keeps_any and 'once' or 'deny'
  answers.send(q, { answer = choice, is_alone = true, review = review })
end

-- proposing -------------------------------------------------------------------------------------------------------------------

---@param asked sanderling.review.asked.Asked
local function watch(asked)
  local function is_current()
    return by_buf[asked.buf] == asked
  end
  local give_up = vim.schedule_wrap(function()
    if not is_current() then
      return
    elseif not api.nvim_buf_is_loaded(asked.buf) then
      known[asked.id].looks = MAX_LOOKS -- the person has closed it: it is not opened again
    end
    forget(asked, true)
    outcome.ask_again(asked.session_id, asked.id)
  end)
  api.nvim_buf_attach(asked.buf, false, {
    on_lines = function()
      return not is_current()
    end,
    on_reload = give_up,
    on_detach = give_up,
  })
end

---@param asked sanderling.review.asked.Asked
local function put(asked)
  local buf, was_modified = asked.buf, vim.bo[asked.buf].modified
  lifting.propose(buf, asked.source, asked.proposal.hunks)
  by_buf[buf] = asked
  local parts, text = lifting.parts(buf)
  for _, part in ipairs(parts) do
    asked.made[part.hunk.id] = { row = part.hunk.row, old = part.hunk.old, new = part.new }
  end
  asked.clean = not was_modified and text or nil
  set_modified(asked)
  writing.guard(buf)
  watch(asked)
  place.show(buf, parts[1] and parts[1].hunk.row or 0, function(other)
    return by_buf[other] == nil
  end)
  float.update()
end

---@param session_id string
---@param event sanderling.ApprovalRequested
local function begin(session_id, event)
  local proposal = event.proposal
  if not proposal then
    return
  end
  local buf, id = proposal.buffer, event.id
  local state = live.state_of(session_id)
  known[id] = known[id] or { looks = 0 }
  known[id].source = known[id].source
    or { session_id = session_id, tool_use_id = id, turn = state.turn or '', is_proposed = true }
  known[id].looks = known[id].looks + 1
  busy.when_possible(buf, function()
    if not outcome.question_of(session_id, id) then
      return
    elseif by_buf[buf] or not lifting.fits(buf, proposal.hunks) then
      outcome.ask_again(session_id, id)
      return
    end
    put({
      session_id = session_id,
      id = id,
      buf = buf,
      proposal = proposal,
      source = known[id].source,
      made = {},
      stamp = place.stamp_of(buf),
      is_touched = false,
      is_answered = false,
    })
  end)
end

---@param q sanderling.session.state.Question
---@return sanderling.approval.Progress?
function wording.progress_of(q)
  local asked = find(q.event.id)
  if asked then
    local left = vim.tbl_filter(function(hunk)
      return hunk.source == asked.source
    end, hunks.list(asked.buf))
    local is_shown = vim.iter(api.nvim_tabpage_list_wins(0)):any(function(win)
      return api.nvim_win_get_buf(win) == asked.buf
    end)
    return { left = #left, count = vim.tbl_count(asked.made), is_shown = is_shown }
  end
end

-- what Python asks, and does -------------------------------------------------------------------------------------------------

---@param path string absolute
---@param device integer
---@param inode integer
---@param where string
---@param tool_use_id string
---@return sanderling.editing.Buffer|false
function M.open(path, device, inode, where, tool_use_id)
  if known[tool_use_id] and known[tool_use_id].looks >= MAX_LOOKS then
    return false
  end
  local buf = place.load(path, device, inode, where)
  if not buf or by_buf[buf] then
    return false
  end
  return describing.describe(buf, path)
end

---@param buf integer
---@return string[]?
---@return boolean?
function M.own_text(buf)
  local asked = by_buf[buf]
  if asked then
    local _, text = lifting.parts(buf)
    return text, is_modified(asked)
  end
end

---@param buf integer
---@param replacements sanderling.editing.Hunk[]
---@param tool_use_id string
---@return sanderling.editing.Part[]?
function M.accepted(buf, replacements, tool_use_id)
  local asked = by_buf[buf]
  if not asked or asked.id ~= tool_use_id then
    return nil
  end
  local parts, text = lifting.parts(buf)
  local wanted, has_end = outcome.replaced(text, vim.bo[buf].endofline, replacements)
  local standing = api.nvim_buf_get_lines(buf, 0, -1, true)
  if not vim.deep_equal(wanted, standing) then
    take_out(asked)
    return nil
  end
  forget(asked)
  vim.bo[buf].endofline, vim.bo[buf].modified = has_end, true
  return vim.tbl_map(function(part)
    local old = part.hunk.old
    return { row = part.hunk.row, old_count = #old, new_count = #part.new, old = old }
  end, parts)
end

---@generic T
---@param buf integer
---@param fn fun(): T
---@return T
function M.aside(buf, fn)
  local asked = by_buf[buf]
  if not asked then
    return fn()
  end
  local lifted = lifting.lift(buf)
  local ok, value = pcall(fn)
  local modified = api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified
  lifting.lay(lifted)
  if api.nvim_buf_is_loaded(buf) then
    vim.bo[buf].modified = modified
  end
  if not ok then
    error(value, 0)
  end
  return value
end

---@param buf integer
---@param fn fun(buf: integer)
function M.reading(buf, fn)
  local asked = by_buf[buf]
  if not asked or asked.is_answered then
    return fn(buf)
  elseif place.stamp_of(buf) ~= asked.stamp then
    local modified = is_modified(asked)
    take_out(asked)
    vim.bo[buf].modified = modified
    fn(buf)
    vim.schedule(function()
      outcome.ask_again(asked.session_id, asked.id)
    end)
  end
end

-- what happens ------------------------------------------------------------------------------------------------------------------

hunks.on_decision(function(list, is_kept, reason)
  local asked = by_buf[list[1].buf]
  if not asked then
    return
  end
  for _, hunk in ipairs(list) do
    if hunk.source == asked.source then
      asked.is_touched = true
      local new = hunks.text_of(hunk)
      for id in pairs(is_kept and {} or hunk.ids) do
        asked.made[id] = id == hunk.id
            and { row = hunk.row, old = hunk.old, new = new, reason = reason }
          or nil
      end
    end
  end
end)

hunks.on_change(function(buf)
  local asked = by_buf[buf]
  if asked and api.nvim_buf_is_loaded(buf) then
    set_modified(asked)
    answer_if_decided(asked)
    float.update()
  end
end)

writing.on_written(function(buf)
  local asked = by_buf[buf]
  if asked then
    asked.stamp = place.stamp_of(buf)
  end
  if asked and not vim.bo[buf].modified then
    asked.clean = api.nvim_buf_get_lines(buf, 0, -1, true)
  end
end)

bus.subscribe('approval_requested', begin)

bus.subscribe('local_answered', function(_, event)
  local asked = find(event.id)
  if asked and (event.answer == 'deny' or event.answer == 'cancel') then
    drop(asked)
  elseif asked then
    asked.is_answered = true
    writing.release(asked.buf) -- the person has accepted all that stands there
  end
end)

bus.subscribe('approval_settled', function(_, event)
  local asked = find(event.id)
  if asked and not asked.is_answered then
    drop(asked)
  end
end)

bus.subscribe('tool_ended', function(_, event)
  local asked = find(event.id)
  known[event.id] = nil
  if asked then
    drop(asked)
  end
end)

for _, type in ipairs({ 'turn_ended', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id)
    for _, asked in pairs(by_buf) do
      if asked.session_id == session_id then
        drop(asked)
      end
    end
  end)
end

return M
