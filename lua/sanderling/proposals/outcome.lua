--- The user's review of a proposal, in the form that Python expects.
local M = {}

local answers = require('sanderling.approval.answers')
local lift = require('sanderling.proposals.lift')
local queue = require('sanderling.approval.queue')

---@class (exact) sanderling.proposals.outcome.Made
---@field row integer
---@field old string[]
---@field new string[]
---@field reason? string why it was rejected

--- Return the lines that were proposed for a hunk, including the lines of absorbed hunks.
---@param asked sanderling.proposals.store.Asked
---@param hunk sanderling.review.Hunk
---@return string[]
local function proposed_for(asked, hunk)
  local ids = vim.tbl_keys(hunk.ids)
  table.sort(ids)
  local lines = {}
  for _, id in ipairs(ids) do
    vim.list_extend(lines, asked.made[id] and asked.made[id].new or {})
  end
  return lines
end

--- Return the user's review of a proposal: hunks that are still in the buffer are accepted, all others are rejected.
---@param asked sanderling.proposals.store.Asked
---@return sanderling.Review
function M.review_of(asked)
  local parts, text = lift.parts(asked.buf)
  local list, present, last_id = {}, {}, 0
  for id in pairs(asked.made) do
    last_id = math.max(last_id, id)
  end
  for i, part in ipairs(parts) do
    local hunk = part.hunk
    present = vim.tbl_extend('keep', present, hunk.ids)
    list[i] = {
      first_line = hunk.row,
      old = hunk.old,
      new = part.new,
      proposed = proposed_for(asked, hunk),
      is_kept = true,
    }
  end
  for id, made in vim.spairs(asked.made) do
    if not present[id] then
      list[#list + 1] = {
        first_line = made.row,
        old = made.old,
        new = made.new,
        proposed = made.new,
        reason = made.reason or '',
      }
    end
  end
  local ends = vim.bo[asked.buf].endofline
  return {
    text = table.concat(text, '\n') .. (ends and #text > 0 and '\n' or ''),
    hunks = list,
    ends_in_newline = present[last_id] and asked.proposal.ends_in_newline ~= false
      or not present[last_id] and ends,
  }
end

--- Apply `replacements` to a text. Return its lines, and whether it ends in a newline.
---@param text string[]
---@param ends boolean
---@param replacements sanderling.editing.Hunk[]
---@return string[]
---@return boolean
function M.replaced(text, ends, replacements)
  local lines = vim.list_slice(text)
  if ends or #lines == 0 then
    lines[#lines + 1] = ''
  end
  for i = #replacements, 1, -1 do
    local row, count, new = unpack(replacements[i])
    lines =
      vim.list_extend(vim.list_extend(vim.list_slice(lines, 1, row), new), lines, row + count + 1)
  end
  if lines[#lines] == '' then
    return vim.list_slice(lines, 1, #lines - 1), true
  end
  return lines, false
end

--- Return the open question with this id.
---@param session_id string
---@param id string
---@return sanderling.session.state.Question?
function M.question_of(session_id, id)
  for _, q in ipairs(queue.list()) do
    if q.session_id == session_id and q.event.id == id then
      return q
    end
  end
end

--- Have the question asked again, because its text was replaced.
---@param session_id string
---@param id string
function M.ask_again(session_id, id)
  local q = M.question_of(session_id, id)
  if q then
    answers.send(q, { answer = 'again' })
  end
end

return M
