--- Ask mode in the file itself. A question's proposed change is shown in the file's buffer as editable lines until each
--- hunk is accepted or rejected; that answers the question. Only the accepted text reaches the disk, and Python writes
--- it.
---
--- A buffer holds the proposal of one question at a time. Other questions about the file, and files that cannot be
--- shown in a window, use the float. So does a change of a file that the user closes meanwhile. If the text of the
--- buffer is replaced, the question is asked again.
local M = {}

local api = vim.api
local answers = require('sanderling.approval.answers')
local bus = require('sanderling.host.bus')
local busy = require('sanderling.editing.busy')
local commands = require('sanderling.review.commands')
local find = require('sanderling.editing.find')
local float = require('sanderling.approval.float')
local history = require('sanderling.proposals.history')
local hunks = require('sanderling.review.hunks')
local lift = require('sanderling.proposals.lift')
local live = require('sanderling.session.live')
local loading = require('sanderling.access.loading')
local outcome = require('sanderling.proposals.outcome')
local place = require('sanderling.proposals.place')
local queue = require('sanderling.approval.queue')
local reviews = require('sanderling.editing.reviews')
local sight = require('sanderling.review.sight')
local store = require('sanderling.proposals.store')
local tracker = require('sanderling.review.tracker')
local unseen = require('sanderling.ui.unseen')
local views = require('sanderling.editing.views')
local write = require('sanderling.proposals.write')

require('sanderling.review')

local MAX_LOOKS = 3 -- proposals of one question in a buffer whose text keeps being replaced; then the float asks

---@type table<string, { source: sanderling.review.Source, looks: integer }> by tool use
local known = {}

---@param asked sanderling.proposals.store.Asked
local function drop(asked)
  busy.when_possible(asked.buf, function()
    store.take_out(asked)
  end)
end

-- the answer ---------------------------------------------------------------------------------------------------------

--- Return the review to send with the answer to a question, nil if undo has removed the whole proposal.
---@param q sanderling.session.state.Question
---@return sanderling.Review?
local function answer_of(q)
  local asked = store.find(q.event.id)
  return asked and #lift.parts(asked.buf) > 0 and outcome.review_of(asked) or nil
end

--- Answer the question once all hunks are decided. Hunks that undo removed are not decided: redo restores them.
---@param asked sanderling.proposals.store.Asked
local function answer_if_decided(asked)
  local q = outcome.question_of(asked.session_id, asked.id)
  local is_open = vim.iter(hunks.list(asked.buf)):any(function(hunk)
    return hunk.source == asked.source
  end)
  local is_out = history.is_before(asked.buf, asked.history)
  if not asked.is_touched or asked.is_answered or is_open or is_out or not q then
    return
  end
  local review = outcome.review_of(asked)
  local accepts_any = vim.iter(review.hunks):any(function(hunk)
    return hunk.is_kept or false
  end)
  local choice = accepts_any and 'once' or 'deny'
  answers.send(q, { answer = choice, is_alone = true, review = review })
end

-- proposing ----------------------------------------------------------------------------------------------------------

---@param asked sanderling.proposals.store.Asked
local function watch(asked)
  local buf = asked.buf
  local function is_current()
    return store.by_buf[buf] == asked
  end
  local give_up = vim.schedule_wrap(function(own)
    if not is_current() then
      return
    end
    store.forget(asked)
    if not api.nvim_buf_is_loaded(buf) then
      known[queue.tool_use_of(asked.id)].looks = MAX_LOOKS -- the user closed it, so it is not opened again
      history.drop(asked.history)
    else
      local text, modified = history.text_of(buf), vim.bo[buf].modified
      store.bring_history_back(asked, own)
      history.set_text(buf, text, true)
      vim.bo[buf].modified = modified
    end
    outcome.ask_again(asked.session_id, asked.id)
  end)
  local function on_unload() -- `:edit` unloads, too
    local kept = tracker.by_buf[buf] or tracker.unloaded[api.nvim_buf_get_name(buf)]
    local _, own = lift.last_parts(kept)
    give_up(own)
  end
  api.nvim_buf_attach(buf, false, {
    on_lines = function()
      return not is_current()
    end,
    on_reload = on_unload,
    on_detach = on_unload,
  })
end

---@param asked sanderling.proposals.store.Asked
local function put(asked)
  local buf, was_modified = asked.buf, vim.bo[asked.buf].modified
  asked.history = history.save(buf)
  lift.propose(buf, asked.source, asked.proposal.hunks)
  store.by_buf[buf] = asked
  local parts, text = lift.parts(buf)
  for _, part in ipairs(parts) do
    asked.made[part.hunk.id] = { row = part.hunk.row, old = part.hunk.old, new = part.new }
  end
  asked.clean = not was_modified and text or nil
  store.set_modified(asked)
  write.guard(buf)
  watch(asked)
  place.show(buf, parts[1] and parts[1].hunk.row or 0, function(other)
    return store.by_buf[other] == nil
  end)
  local first = hunks.list(buf)[1]
  if first then
    sight.reveal(first)
  end
  float.update()
end

---@param session_id string
---@param event sanderling.ApprovalRequested
local function begin(session_id, event)
  local proposal = event.proposal
  if not proposal then
    return
  end
  local buf, id = proposal.buffer, queue.tool_use_of(event.id)
  local state = live.state_of(session_id)
  known[id] = known[id] or { looks = 0 }
  known[id].source = known[id].source
    or { session_id = session_id, tool_use_id = id, turn = state.turn or '', is_proposed = true }
  known[id].looks = known[id].looks + 1
  busy.when_possible(buf, function()
    if not outcome.question_of(session_id, event.id) then
      return
    elseif store.by_buf[buf] or not lift.fits(buf, proposal.hunks) then
      outcome.ask_again(session_id, event.id)
      return
    end
    put({
      session_id = session_id,
      id = event.id,
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

---@type table<sanderling.review.Hunk, { tick: integer, count: integer, numbers: string[] }> invisible characters
local unseen_in = setmetatable({}, { __mode = 'k' })

---@param hunk sanderling.review.Hunk
---@return integer
---@return string[] numbers see ui/unseen.lua
local function count_unseen(hunk)
  local known_, tick = unseen_in[hunk], api.nvim_buf_get_changedtick(hunk.buf)
  if not known_ or known_.tick ~= tick then
    local count, numbers = unseen.count(table.concat(hunks.text_of(hunk), '\n'))
    known_ = { tick = tick, count = count, numbers = numbers }
    unseen_in[hunk] = known_
  end
  return known_.count, known_.numbers
end

--- Return the hunks that are not decided yet as a difference, nil if that is the whole proposal as it was made.
---@param asked sanderling.proposals.store.Asked
---@param left sanderling.review.Hunk[]
---@return string[]?
local function difference_of(asked, left)
  if #left == vim.tbl_count(asked.made) and store.is_as_proposed(asked.buf) then
    return nil
  end
  local lines = {}
  for _, hunk in ipairs(left) do
    local header = '@@ -%d,%d +%d,%d @@'
    lines[#lines + 1] = header:format(hunk.row + 1, #hunk.old, hunk.row + 1, hunk.count)
    for _, part in ipairs({ { '-', hunk.old }, { '+', hunks.text_of(hunk) } }) do
      for _, line in ipairs(part[2]) do
        lines[#lines + 1] = part[1] .. unseen.visible(line)
      end
    end
  end
  return lines
end

---@param q sanderling.session.state.Question
---@return sanderling.approval.Progress?
local function progress_of(q)
  local asked = store.find(q.event.id)
  if asked then
    local left = vim.tbl_filter(function(hunk)
      return hunk.source == asked.source
    end, hunks.list(asked.buf))
    local in_view, unseen_count, unseen_numbers = {}, 0, {}
    for _, hunk in ipairs(left) do
      local count, numbers = count_unseen(hunk)
      unseen_count = unseen_count + count
      for _, number in ipairs(numbers) do
        if not vim.list_contains(unseen_numbers, number) then
          unseen_numbers[#unseen_numbers + 1] = number
        end
      end
      in_view[#in_view + 1] = sight.area_of(hunk)
    end
    return {
      buf = asked.buf,
      left = #left,
      count = vim.tbl_count(asked.made),
      in_view = in_view,
      unseen = unseen_count,
      unseen_numbers = unseen_numbers,
      difference = function()
        return difference_of(asked, left)
      end,
    }
  end
end

--- Go to the first undecided hunk of a question, in a window that shows the file if there is one.
---@param q sanderling.session.state.Question
---@return boolean is_there
local function go_to(q)
  local asked = store.find(q.event.id)
  local hunk = asked and hunks.list(asked.buf)[1]
  if not asked or not hunk then
    return false
  end
  local win = sight.windows_of(asked.buf)[1] or vim.fn.win_findbuf(asked.buf)[1]
  if win then
    api.nvim_set_current_win(win)
  end
  commands.go_to(hunk)
  return true
end

-- requests from Python -----------------------------------------------------------------------------------------------

---@param path string absolute
---@param device integer
---@param inode integer
---@param where string
---@param tool_use_id string
---@return sanderling.editing.Buffer|false
function M.open(path, device, inode, where, tool_use_id)
  local use = known[queue.tool_use_of(tool_use_id)]
  if use and use.looks >= MAX_LOOKS then
    return false
  end
  local buf = place.load(path, device, inode, where)
  if not buf or store.by_buf[buf] then
    return false
  end
  return find.describe(buf, path)
end

---@param buf integer
---@return string[]?
---@return boolean?
function M.own_text(buf)
  local asked = store.by_buf[buf]
  if asked then
    local _, text = lift.parts(buf)
    return text, store.is_modified(asked)
  end
end

---@param buf integer
---@param replacements sanderling.editing.Hunk[]
---@param tool_use_id string
---@return sanderling.editing.Part[]?
function M.accepted(buf, replacements, tool_use_id)
  local asked = store.by_buf[buf]
  if not asked or queue.tool_use_of(asked.id) ~= queue.tool_use_of(tool_use_id) then
    return nil
  end
  local parts, text = lift.parts(buf)
  local wanted, has_end = outcome.replaced(text, vim.bo[buf].endofline, replacements)
  local standing = api.nvim_buf_get_lines(buf, 0, -1, true)
  if not vim.deep_equal(wanted, standing) then
    store.take_out(asked)
    return nil
  elseif history.is_one_ahead(buf, asked.history) then
    history.drop(asked.history)
  elseif asked.history then
    local shown = views.save(buf)
    store.bring_history_back(asked, lift.lift(buf).text)
    history.set_text(buf, wanted, true)
    views.restore(buf, shown)
  end
  store.forget(asked)
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
  if store.by_buf[buf] then
    return lift.aside(buf, fn)
  end
  return fn()
end

---@generic T
---@param buf integer
---@param fn fun(): T
---@return T
function M.writing(buf, fn)
  if vim.b[buf].sanderling_proposed then
    return write.aside(buf, fn)
  end
  return fn()
end

---@param buf integer
---@param fn fun(buf: integer)
function M.reading(buf, fn)
  local asked = store.by_buf[buf]
  if not asked or asked.is_answered then
    return fn(buf)
  elseif place.stamp_of(buf) ~= asked.stamp then
    local modified = store.is_modified(asked)
    store.take_out(asked)
    vim.bo[buf].modified = modified
    fn(buf)
    vim.schedule(function()
      outcome.ask_again(asked.session_id, asked.id)
    end)
  end
end

-- events -------------------------------------------------------------------------------------------------------------

hunks.on_decision(function(list, is_kept, reason)
  local asked = store.by_buf[list[1].buf]
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
  local asked = store.by_buf[buf]
  if asked and api.nvim_buf_is_loaded(buf) then
    store.set_modified(asked)
    answer_if_decided(asked)
    float.update()
  end
end)

write.on_lifted(function(lifted)
  local asked = store.by_buf[lifted.buf]
  if asked and asked.history then
    store.bring_history_back(asked, lifted.text)
    lifted.is_apart = true
  end
end)

write.on_written(function(buf)
  local asked = store.by_buf[buf]
  if asked then
    asked.stamp = place.stamp_of(buf)
  end
  if asked and not vim.bo[buf].modified then
    asked.clean = api.nvim_buf_get_lines(buf, 0, -1, true)
  end
  if asked and not asked.history then
    asked.history = history.save(buf)
  end
end)

bus.subscribe('approval_requested', begin)

bus.subscribe('local_answered', function(_, event)
  local asked = store.find(event.id)
  if asked and (event.answer == 'deny' or event.answer == 'cancel') then
    drop(asked)
  elseif asked then
    asked.is_answered = true
    write.release(asked.buf) -- the user accepted the buffer's text
    loading.open(asked.buf)
  end
end)

bus.subscribe('approval_settled', function(_, event)
  local asked = store.find(event.id)
  if asked and not asked.is_answered then
    drop(asked)
  end
end)

bus.subscribe('tool_ended', function(_, event)
  local asked = store.find(event.id)
  known[queue.tool_use_of(event.id)] = nil
  if asked then
    drop(asked)
  end
end)

for _, type in ipairs({ 'turn_ended', 'local_failed', 'local_closed' }) do
  bus.subscribe(type, function(session_id)
    for _, asked in pairs(store.by_buf) do
      if asked.session_id == session_id then
        drop(asked)
      end
    end
  end)
end

queue.register({ answer_of = answer_of, progress_of = progress_of, go_to = go_to })
reviews.register({
  open = M.open,
  own_text = M.own_text,
  is_as_proposed = store.is_as_proposed,
  accepted = M.accepted,
  aside = M.aside,
  writing = M.writing,
  reading = M.reading,
})

return M
