--- The keys of the float.
local M = {}

local api = vim.api
local answers = require('sanderling.review.answers')
local config = require('sanderling.config')
local diff = require('sanderling.transcript.diff')
local files = require('sanderling.ui.files')
local float = require('sanderling.review.float')
local message = require('sanderling.ui.message')
local pages = require('sanderling.ui.float')
local queue = require('sanderling.review.queue')
local wording = require('sanderling.review.wording')
local words = require('sanderling.ui.words')

--- Close the float without an answer. The question waits on.
local function leave()
  float.close()
  float.set_left()
end

---@param step -1|1
local function go_to_question(step)
  queue.index = (queue.index - 1 + step) % #queue.list + 1
  float.update()
end

--- Show the whole subject in a tab page of its own, or the file that the question is about.
local function open_whole()
  local q = assert(queue.question())
  local event = q.event
  local filetype, path = event.filetype or '', event.path or ''
  if filetype ~= 'diff' and files.open_in_tab(path) then
    return
  end
  local buf = pages.new_buffer('question', words.lines_of(event.subject))
  vim.cmd(('tab sbuffer %d'):format(buf))
  diff.set_syntax(buf, filetype, 1)
  vim.keymap.set('n', 'q', function()
    api.nvim_buf_delete(buf, { force = true }) -- also where no other window is left
    if queue.question() == q then
      answers.focus() -- where `p` was pressed: the answer is what comes next
    end
  end, { buffer = buf, nowait = true, desc = 'Agent: back to the question' })
end

---@param buf integer
function M.set(buf)
  local function set(lhs, rhs, desc)
    vim.keymap.set('n', lhs, rhs, { buffer = buf, nowait = true, desc = 'Agent: ' .. desc })
  end
  local function map(lhs, rhs, desc)
    set(lhs, rhs, desc)
    set('<LocalLeader>' .. lhs, '<Nop>', 'a key of the chat answers nothing')
  end
  for _, lhs in ipairs(config.list_keys(config.options.keys.approvals)) do
    set(lhs, '<Nop>', 'already here')
  end
  local function answering(fn)
    return function()
      local q = queue.question()
      if q and float.is_seen() then -- a key that was typed for what stood here before answers nothing
        fn(q)
      end
    end
  end
  for lhs, choice in pairs(wording.choice_of) do
    map(
      lhs,
      answering(function(q)
        answers.allow(choice, q)
      end),
      'allow: ' .. choice
    )
  end
  --- `d` and `D`, or those for this one alone, which are `d` and `D` where it is the only one.
  local function map_denying(lhs, lhs_with_reason, is_alone)
    map(
      lhs,
      answering(function(q)
        answers.send(q, { answer = 'deny', is_alone = is_alone })
      end),
      'deny'
    )
    map(
      lhs_with_reason,
      answering(function(q)
        message.ask({ prompt = 'Deny, because: ' }, function(reason)
          if reason then
            answers.send(q, { answer = 'deny', reason = vim.trim(reason), is_alone = is_alone })
          end
        end)
      end),
      'deny, and say why'
    )
  end
  map_denying('d', 'D')
  map_denying('x', 'X', true)
  map('<Tab>', function()
    go_to_question(1)
  end, 'next question')
  map('<S-Tab>', function()
    go_to_question(-1)
  end, 'previous question')
  map('p', open_whole, 'show it whole')
  for _, lhs in ipairs({ 'q', '<Esc>' }) do
    map(lhs, leave, 'close without an answer')
  end
end

return M
