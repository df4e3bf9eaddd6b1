--- Inline edits: lines, a selection or a block that the model rewrites on an instruction. The buffer is unchanged until the user
--- accepts. Several edits can run at once, each shown below its lines.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local config = require('sanderling.config')
local context = require('sanderling.inline.context')
local host = require('sanderling.host')
local install = require('sanderling.host.install')
local keys = require('sanderling.ui.keys')
local live = require('sanderling.session.live')
local locked = require('sanderling.ui.locked')
local message = require('sanderling.ui.message')
local preview = require('sanderling.inline.preview')
local regions = require('sanderling.inline.region')
local small = require('sanderling.ui.lazy')('sanderling.prompt.small')
local draw = require('sanderling.inline.draw')
local stored = require('sanderling.session.stored')

local TAKEN = 'These lines have another edit. Accept or reject it first.'
local NOTHING_HERE = 'No edit here. :AgentEdit starts one.'
local STOP_REASONS = {
  max_tokens = 'The answer reached the token limit, so it cannot be accepted.',
  refusal = 'The model refused to write this.',
  context_full = "The model's context window is full, so the edit cannot be accepted.",
}

---@type table<integer, sanderling.inline.draw.Edit>
local edits = {}
local last_id = 0

---@param text string
---@param level? integer
local function tell(text, level)
  message.tell(text, level or vim.log.levels.WARN)
end

-- keys ----------------------------------------------------------------------------------------------------------------

---@param buf integer
---@return sanderling.inline.draw.Edit[] in the order of their lines
local function edits_in(buf)
  local list = regions.of_buffer(edits, buf)
  table.sort(list, function(one, other)
    return (one.region:rows() or -1) < (other.region:rows() or -1)
  end)
  return list
end

--- Return the edit at the cursor, or the only one in the buffer.
---@return sanderling.inline.draw.Edit?
function M.here()
  return regions.here(edits_in(api.nvim_get_current_buf()))
end

---@type table<string, fun()>
local actions = {
  edit_accept = function()
    if not M.accept('only') then
      tell(NOTHING_HERE)
    end
  end,
  edit_reject = function()
    if not M.reject('only') then
      tell(NOTHING_HERE)
    end
  end,
  edit_refine = function()
    M.ask_to_refine()
  end,
  stop = function()
    M.stop()
  end,
}

---@param buf integer
function M.update_keys(buf)
  keys.keep(buf, 'edit', function()
    return #edits_in(buf) > 0
  end, actions)
end

-- requests ------------------------------------------------------------------------------------------------------------

--- Report the first answer, or that there will be none, to whoever has started the edit and waits for it.
---@param edit sanderling.inline.draw.Edit
---@param problem? string
local function answer_to(edit, problem)
  local on_answer = edit.on_answer
  edit.on_answer = nil
  if on_answer then
    vim.schedule(function()
      on_answer(problem)
    end)
  end
end

--- End an edit and remove everything but its changes.
---@param edit sanderling.inline.draw.Edit
---@param outcome 'accepted'|'rejected'|'stopped'|'failed'|'closed'
local function finish(edit, outcome)
  if edit.request then
    host.stop_request(edit.request)
  end
  answer_to(edit, outcome)
  edits[edit.id], edit.request = nil, nil
  preview.clear(edit.region.buf, edit.mark)
  edit.region:forget()
  M.update_keys(edit.region.buf)
  vim.schedule(function()
    bus.announce('AgentEditEnded', { buf = edit.region.buf, outcome = outcome, usd = edit.usd })
  end)
end

---@param edit sanderling.inline.draw.Edit
---@param piece sanderling.RewritePiece
local function take_piece(edit, piece)
  edit.notice = piece.notice or ''
  local text = edit.text:sub(1, piece.kept or 0) .. (piece.text or '')
  edit.is_empty = edit.is_empty and text == ''
  edit.text = text
  draw.draw(edit)
end

--- Return to the previous draft after a request without a result; without a draft, end the edit.
---@param edit sanderling.inline.draw.Edit
---@param outcome 'stopped'|'failed'
local function fall_back(edit, outcome)
  local draft = edit.drafts[#edit.drafts]
  if not draft then
    return finish(edit, outcome)
  end
  edit.request, edit.notice = nil, ''
  edit.instruction, edit.text, edit.is_empty = draft.instruction, draft.text, false
  draw.draw(edit)
end

---@param edit sanderling.inline.draw.Edit
---@param result sanderling.Rewritten|{ error: string }
local function take_answer(edit, result)
  edit.request = nil
  if result.error then
    if not edit.on_answer then
      tell(result.error, vim.log.levels.ERROR)
    end
    answer_to(edit, result.error)
    return fall_back(edit, 'failed')
  end
  edit.text, edit.is_empty = result.text, false
  edit.notice = STOP_REASONS[result.stop_reason] or ''
  local usage = result.usage
  edit.tokens_in = edit.tokens_in
    + (usage.input_tokens or 0)
    + (usage.cache_creation_input_tokens or 0)
    + (usage.cache_read_input_tokens or 0)
  edit.tokens_out = edit.tokens_out + (usage.output_tokens or 0)
  edit.usd, edit.is_priced = edit.usd + result.usd, edit.is_priced and result.is_priced
  if edit.notice == '' then
    table.insert(edit.drafts, { instruction = edit.instruction, text = result.text })
  end
  draw.draw(edit)
  answer_to(edit, edit.notice ~= '' and edit.notice or nil)
  bus.announce('AgentEditReady', { buf = edit.region.buf, usd = edit.usd })
end

---@param project string
---@return string model of the current session; empty if the settings choose
---@return string? session_id in which the cost counts
local function model_for(project)
  local session = live.current()
  if not session or session.project ~= project then
    return ''
  end
  return session.state.agent == '' and session.state.model or '', session.id
end

--- Ask the host what edits with these tokens in all would cost.
---@param project string
---@param sent integer
---@param received integer
---@param on_answer fun(priced: sanderling.RewritesPriced|{ error: string })
function M.price(project, sent, received, on_answer)
  host.request({
    type = 'price_rewrites',
    project = project,
    model = (model_for(project)),
    sent_tokens = sent,
    received_tokens = received,
  }, on_answer)
end

--- Send a request for `edit.instruction`.
---@param edit sanderling.inline.draw.Edit
---@return string? error
local function ask(edit)
  local request, err = context.of(edit.region, edit.project)
  if not request then
    return err
  end
  request.type, request.instruction, request.drafts = 'rewrite', edit.instruction, edit.drafts
  request.selections = edit.selections
  if edit.shared then
    request.shared, request.before, request.after, request.outline = edit.shared, '', '', ''
  end
  request.model, request.session_id = model_for(edit.project)
  edit.text, edit.is_empty, edit.notice = '', true, ''
  local function while_it_lives(fn)
    return function(result)
      if edits[edit.id] then
        locked.retry(function()
          if edits[edit.id] then
            fn(edit, result)
          end
        end, function(why)
          require('sanderling.host.log').note_defect(why)
        end)
      end
    end
  end
  edit.request = host.request(request, while_it_lives(take_answer), while_it_lives(take_piece))
  draw.draw(edit)
end

--- Return why the buffer cannot be edited, if so.
---@param buf integer
---@return string?
local function refusal(buf)
  local python, err = host.python()
  if config.problem or not python then
    vim.schedule(install.offer)
    return config.problem or err
  elseif not vim.bo[buf].modifiable then
    return "This buffer is locked ('nomodifiable'); nothing was sent."
  end
end

--- Return an edit that overlaps the rows `first` to `last`.
---@param buf integer
---@param first integer row
---@param last integer
---@return sanderling.inline.draw.Edit?
---@return boolean is_same it has exactly these rows
local function overlapping(buf, first, last)
  for _, edit in ipairs(edits_in(buf)) do
    local from, to = edit.region:rows()
    if from and from <= last and to >= first then
      return edit, from == first and to == last
    end
  end
  return nil, false
end

--- Does an edit of the lines `first` to `last` wait, or of a part of them?
---@param buf integer
---@param first integer line, from 1
---@param last integer
---@return boolean
function M.is_any_at(buf, first, last)
  return (overlapping(buf, first - 1, last - 1)) ~= nil
end

--- Refine an edit by another instruction.
---@param edit sanderling.inline.draw.Edit
---@param instruction string
function M.refine(edit, instruction)
  if not edit.region:is_as_sent() then
    return tell(edit.region:refusal({}) or '')
  elseif edit.request then
    host.stop_request(edit.request)
    edit.request = nil
  end
  edit.instruction = instruction
  local err = ask(edit)
  if err then
    tell(err, vim.log.levels.ERROR)
  end
end

--- Create an edit of `region`, without a request.
---@param region sanderling.inline.region.Region
---@param instruction string
---@return sanderling.inline.draw.Edit? edit nil: impossible
---@return string? why
---@return sanderling.inline.draw.Edit? other with exactly these lines
local function open(region, instruction)
  local first, last = region:rows()
  local err = refusal(region.buf)
  local other, is_same = overlapping(region.buf, assert(first), last)
  if err or other then
    region:forget()
    return nil, err or TAKEN, not err and is_same and other or nil
  end
  last_id = last_id + 1
  local edit = { ---@type sanderling.inline.draw.Edit
    id = last_id,
    region = region,
    project = stored.root_here(),
    instruction = instruction,
    drafts = {},
    text = '',
    is_empty = true,
    notice = '',
    tokens_in = 0,
    tokens_out = 0,
    usd = 0,
    is_priced = true,
  }
  edits[edit.id] = edit
  M.update_keys(region.buf)
  api.nvim_buf_attach(region.buf, false, {
    on_detach = vim.schedule_wrap(function()
      if edits[edit.id] and not edit.region:rows() then
        finish(edit, 'closed')
      end
    end),
  })
  return edit
end

---@param why? string
local function tell_refusal(why)
  tell(assert(why), why ~= TAKEN and vim.log.levels.ERROR or nil)
end

--- Start an edit of `region`, or refine the existing edit.
---@param region sanderling.inline.region.Region
---@param instruction string
---@param selections? sanderling.Selection[] attachments
function M.begin(region, instruction, selections)
  local edit, why, other = open(region, instruction)
  if other then
    return M.refine(other, instruction)
  elseif not edit then
    return tell_refusal(why)
  end
  edit.selections = selections
  local err = ask(edit)
  if err then
    finish(edit, 'failed')
    tell(err, vim.log.levels.ERROR)
  end
end

--- Start one of many edits: `on_answer` gets its first answer, or why there is none, instead of the user.
---@param region sanderling.inline.region.Region
---@param instruction string
---@param selections sanderling.Selection[] attachments
---@param shared? string
---@param on_answer fun(problem?: string)
---@return fun() stop
function M.begin_one(region, instruction, selections, shared, on_answer)
  local edit, why = open(region, instruction)
  if edit then
    edit.on_answer, edit.shared, edit.selections = on_answer, shared, selections
    local err = ask(edit)
    if err then
      answer_to(edit, err)
      finish(edit, 'failed')
    end
  else
    vim.schedule(function()
      on_answer(why)
    end)
  end
  return function()
    if edit and edits[edit.id] and edit.request then
      fall_back(edit, 'stopped')
    end
  end
end

--- Offer to replace `region` by `text`, as an edit that is already written.
---@param region sanderling.inline.region.Region
---@param text string
---@param title string
function M.offer(region, text, title)
  local edit, why = open(region, title)
  if edit then
    edit.drafts, edit.text, edit.is_empty = { { instruction = title, text = text } }, text, false
    draw.draw(edit)
  else
    tell_refusal(why)
  end
end

-- actions -------------------------------------------------------------------------------------------------------------

---@return sanderling.inline.draw.Edit? edit nil: there is none, which is reported
local function wanted()
  local edit = M.here()
  if not edit then
    tell(NOTHING_HERE)
  end
  return edit
end

---@param edit sanderling.inline.draw.Edit
---@return string? refusal
local function put_in(edit)
  if edit.request then
    return 'It is still being written.'
  elseif edit.notice ~= '' then
    return edit.notice
  end
  local lines = draw.lines_of(edit)
  if context.has_returns(edit.region.text) then
    lines = vim.tbl_map(function(line)
      return line .. '\r'
    end, lines)
  end
  local why = edit.region:refusal(lines)
  if not why then
    edit.region:replace(lines)
    finish(edit, 'accepted')
  end
  return why
end

--- Accept edits in the buffer.
---@param which sanderling.inline.region.Which
---@return boolean is_done false: there are none
function M.accept(which)
  local list = regions.chosen(edits_in(api.nvim_get_current_buf()), which)
  for _, edit in ipairs(list) do
    local why = put_in(edit)
    if why then
      tell(why)
    end
  end
  return #list > 0
end

--- Reject edits in the buffer.
---@param which sanderling.inline.region.Which
---@return boolean is_done false: there are none
function M.reject(which)
  local list = regions.chosen(edits_in(api.nvim_get_current_buf()), which)
  for _, edit in ipairs(list) do
    finish(edit, 'rejected')
  end
  return #list > 0
end

--- Stop the request at the cursor; the previous draft returns.
function M.stop()
  local edit = M.here()
  if edit and edit.request then
    host.stop_request(edit.request)
    edit.request = nil
    fall_back(edit, 'stopped')
    message.tell('Stopped.')
  else
    api.nvim_feedkeys(vim.keycode('<C-c>'), 'ni', false)
  end
end

--- Ask for an instruction in the small prompt below `region`.
---@param region sanderling.inline.region.Region
---@param what string to do
---@param on_send fun(instruction: string)
---@param on_leave fun() closed without sending
function M.ask(region, what, on_send, on_leave)
  local first, last = region:rows()
  if not first then
    return on_leave()
  end
  preview.reveal(region.buf, first, last, small.rows())
  small.open({
    plain = 'edit',
    title = regions.title(what, region),
    row = last,
    on_send = function(lines)
      on_send(table.concat(lines, '\n'))
    end,
    on_leave = on_leave,
  })
end

--- Ask how to change the edit at the cursor.
function M.ask_to_refine()
  local edit = wanted()
  if edit then
    M.ask(edit.region, 'Refine', function(instruction)
      if edits[edit.id] then
        M.refine(edit, instruction)
      end
    end, function() end)
  end
end

bus.subscribe('local_offered', function(_, event)
  M.offer(regions.lines(event.buf, event.first, event.last), event.text, 'From the answer')
end)

return M
