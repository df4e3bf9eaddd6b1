--- Drawing edits: below their lines, with state, cost and keys.
local M = {}

local icons = require('sanderling.ui.icons')
local keys = require('sanderling.ui.keys')
local preview = require('sanderling.inline.preview')
local words = require('sanderling.ui.words')

---@class (exact) sanderling.inline.draw.Edit
---@field id integer
---@field region sanderling.inline.region.Region
---@field project string
---@field instruction string the last one
---@field selections? sanderling.Selection[] attachments
---@field shared? string text around it and other edits
---@field drafts sanderling.Draft[] earlier results, and the current one when it is complete
---@field text string so far
---@field is_empty boolean no text has arrived yet
---@field request? integer the pending one
---@field notice string what it waits for, or why it cannot be accepted
---@field tokens_in integer
---@field tokens_out integer
---@field usd number
---@field is_priced boolean
---@field mark? integer of the preview
---@field on_answer? fun(problem?: string) waits for its first answer

---@param edit sanderling.inline.draw.Edit
---@return string[]
function M.lines_of(edit)
  local text = edit.text
  return text == '' and edit.region.kind == 'lines' and {}
    or vim.split(text, '\n', { plain = true })
end

--- Return the tokens and dollars of all requests of an edit so far.
---@param edit sanderling.inline.draw.Edit
---@return string
local function cost_of(edit)
  local tokens = icons.sent
    .. words.short(edit.tokens_in)
    .. ' '
    .. icons.received
    .. words.short(edit.tokens_out)
  local dollars = edit.is_priced and words.dollars(edit.usd) or 'no price'
  return tokens .. icons.separator .. dollars
end

---@param edit sanderling.inline.draw.Edit
---@return sanderling.inline.preview.Chunks
local function status_of(edit)
  if edit.request then
    local doing = edit.notice ~= '' and edit.notice or edit.is_empty and 'Asked' or 'Writing'
    local stop = keys.hint('stop', ':AgentReject', 'stops')
    return { { words.plain(doing) .. icons.separator .. stop, 'AgentBusy' } }
  end
  local can_be_accepted = edit.notice == ''
  local hints = {
    keys.hint('edit_reject', ':AgentReject', 'rejects'),
    keys.hint('edit_refine', ':AgentEdit', 'refines'),
  }
  if can_be_accepted then
    table.insert(hints, 1, keys.hint('edit_accept', ':AgentAccept', 'accepts'))
  end
  if edit.tokens_in > 0 then -- otherwise the text was there already
    hints[#hints + 1] = cost_of(edit) -- last, because a narrow window cuts the end
  end
  local chunks = { { table.concat(hints, icons.separator), 'AgentStatus' } }
  if not can_be_accepted then
    table.insert(chunks, 1, { edit.notice .. ' ', 'AgentWarning' })
  end
  return chunks
end

--- Draw the current state of an edit.
---@param edit sanderling.inline.draw.Edit
function M.draw(edit)
  local first, last = edit.region:rows()
  if not first then
    return
  end
  local is_whole = edit.request == nil
  local old = vim.tbl_map(function(line)
    return (line:gsub('\r$', ''))
  end, edit.region.text)
  local new = edit.is_empty and not is_whole and {} or M.lines_of(edit)
  local height
  edit.mark, height = preview.draw(edit.region.buf, last, edit.mark, {
    title = words.first_line(edit.instruction),
    difference = preview.difference(old, new, is_whole),
    is_whole = is_whole,
    status = status_of(edit),
  })
  preview.reveal(edit.region.buf, first, last, height)
end

return M
