--- The pending questions of all sessions, and which of them is shown.
local live = require('sanderling.session.live')
local states = require('sanderling.session.state')

local M = {}

---@class (exact) sanderling.approval.queue.Review of a question's change, in the file itself
---@field answer_of fun(q: sanderling.session.state.Question): sanderling.Review? for the answer to the question
---@field progress_of fun(q: sanderling.session.state.Question): sanderling.approval.Progress?
---@field go_to fun(q: sanderling.session.state.Question): boolean moves the cursor to the first hunk, if there is one

--- The review of proposals, which is in a higher layer and registers here.
---@type sanderling.approval.queue.Review
M.review = {
  answer_of = function() end,
  progress_of = function() end,
  go_to = function()
    return false
  end,
}

---@param review sanderling.approval.queue.Review
function M.register(review)
  M.review = review
end

---@type sanderling.session.state.Question?
local shown
local index = 1 -- its last index

--- Return the id of the tool use that a question is about. A question of a child session, in its parent, begins with the child's id.
---@param question_id string
---@return string
function M.tool_use_of(question_id)
  return question_id:match('^[%w_-]+/(.+)$') or question_id
end

--- Return the child session that asks, in a question that its parent shows.
---@param event sanderling.ApprovalRequested
---@return string? id
function M.child_of(event)
  return (event.child or '') ~= '' and event.id:match('^([%w_-]+)/') or nil
end

--- Return whether the session that started this one shows its questions, so that each of them is listed only once.
---@param state sanderling.session.state.State
---@return boolean
local function is_shown_by_parent(state)
  return vim.iter(live.state_of(state.parent).children):any(function(child)
    return child.id == state.id and states.is_active[child.state] ~= nil
  end)
end

--- Return all questions in the order in which they were asked.
---@return sanderling.session.state.Question[]
function M.list()
  local list, place = {}, {}
  for _, session in ipairs(live.all()) do
    local questions = is_shown_by_parent(session.state) and {} or session.state.questions
    for _, question in ipairs(questions) do
      list[#list + 1] = question
      place[question] = #list
    end
  end
  table.sort(list, function(a, b)
    if a.asked_ns == b.asked_ns then
      return place[a] < place[b]
    end
    return a.asked_ns < b.asked_ns
  end)
  return list
end

---@param question sanderling.session.state.Question
---@return integer? index
local function index_of(question)
  for i, each in ipairs(M.list()) do
    if each == question then
      return i
    end
  end
end

--- Return the question to show. When it is answered, the next one replaces it.
---@return sanderling.session.state.Question?
---@return integer index
---@return integer count
function M.question()
  local list = M.list()
  local kept = shown and index_of(shown)
  index = kept or math.max(1, math.min(index, #list))
  shown = list[index]
  return shown, index, #list
end

---@param new_index integer
function M.show(new_index)
  local list = M.list()
  shown = list[(new_index - 1) % #list + 1]
end

return M
