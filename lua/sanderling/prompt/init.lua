--- The prompt: an ordinary buffer, with recall of earlier prompts.
local api = vim.api
local lazy = require('sanderling.ui.lazy')

local completion = require('sanderling.prompt.completion')
local noting = lazy('sanderling.prompt.noting')
local pasted = lazy('sanderling.prompt.pasted')
local placeholder = require('sanderling.prompt.placeholder')
local prompt_history = lazy('sanderling.prompt.history')
local words = require('sanderling.ui.words')

local M = {}

local ON_ITS_OWN = 'sent on its own'
local ns = api.nvim_create_namespace('sanderling_prompt')
local seams_ns = api.nvim_create_namespace('sanderling_seams')

---@alias sanderling.prompt.Plain 'edit'|'comment' what is written: text without commands and mentions

---@class (exact) sanderling.prompt.Prompt
---@field buf integer
---@field private history_index? integer index of the recalled history entry
---@field private draft? string[] text before the recall
---@field private has_notes boolean there are notes next to mentions
---@field private plain? sanderling.prompt.Plain
---@field private state? fun(): sanderling.session.state.State of its session
local Prompt = {}
Prompt.__index = Prompt

---@param buf integer
---@param state? fun(): sanderling.session.state.State of its session; nil: none yet
---@param plain? sanderling.prompt.Plain
---@return sanderling.prompt.Prompt
function M.new(buf, state, plain)
  if not plain then
    completion.attach(buf)
    api.nvim_buf_attach(buf, false, {
      on_lines = function(_, _, _, first, last, new_last)
        if new_last > last then
          pasted.note(buf, first, last, new_last)
        end
      end,
    })
  end
  local self = setmetatable({ buf = buf, has_notes = false, plain = plain, state = state }, Prompt)
  api.nvim_create_autocmd('ModeChanged', {
    buffer = buf,
    desc = 'Agent: update the keys in an empty prompt',
    callback = function()
      self:draw_placeholder()
    end,
  })
  return self
end

---@return string[]
function Prompt:lines()
  return api.nvim_buf_get_lines(self.buf, 0, -1, true)
end

--- Replace the text as a separate change, so that `u` restores the typed text, even within one insert.
---@private
---@param lines string[]
function Prompt:replace(lines)
  api.nvim_buf_call(self.buf, function()
    vim.cmd('noautocmd let &l:undolevels = &l:undolevels') -- ends the undo block
  end)
  api.nvim_buf_set_lines(self.buf, 0, -1, true, lines)
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    api.nvim_win_set_cursor(win, { #lines, #lines[#lines] })
  end
end

---@param lines string[]
function Prompt:set(lines)
  self:replace(lines)
  self:draw_placeholder()
end

--- Return whether `text` is a slash command or a shell command, which must be at the beginning of a prompt.
---@param text string
---@return boolean
local function is_command(text)
  return text:find('^[/!]') ~= nil
end

--- Mark the text from `row` on as a separate prompt. The mark moves with the line, and undo restores it.
---@private
---@param row integer
function Prompt:mark_seam(row)
  local line = api.nvim_buf_get_lines(self.buf, row, row + 1, true)[1]
  api.nvim_buf_set_extmark(self.buf, seams_ns, row, 0, {
    end_col = #line,
    right_gravity = false,
    invalidate = true,
    virt_text = { { ON_ITS_OWN, 'AgentPlaceholder' } },
  })
end

--- Put unsent texts back above the typed text; the cursor moves with its line. A command is separated from adjacent
--- texts.
---@param texts string[]
function Prompt:put_back(texts)
  local lines = vim.split(table.concat(texts, '\n'), '\n', { plain = true })
  local draft = table.concat(self:lines(), '\n')
  if draft == '' then
    self:set(lines)
  else
    api.nvim_buf_set_lines(self.buf, 0, 0, true, lines)
    self:draw_placeholder()
  end
  local row, parts = 0, draft == '' and texts or vim.list_extend(vim.list_slice(texts), { draft })
  for i = 2, #parts do
    row = row + select(2, parts[i - 1]:gsub('\n', '')) + 1
    if is_command(parts[i - 1]) or is_command(parts[i]) then
      self:mark_seam(row)
    end
  end
end

--- Split the text into separate prompts.
---@private
---@return string[][]
function Prompt:parts()
  local lines, parts, first = self:lines(), {}, 0
  local seams = api.nvim_buf_get_extmarks(self.buf, seams_ns, 0, -1, { details = true })
  local rows = { #lines }
  for _, seam in ipairs(seams) do
    if not seam[4].invalid then
      table.insert(rows, seam[2])
    end
  end
  table.sort(rows)
  for _, row in ipairs(rows) do
    local part = vim.list_slice(lines, first + 1, row)
    while #part > 0 and words.trimmed(part[#part]) == '' do
      part[#part] = nil
    end
    if #part > 0 then
      parts[#parts + 1] = part
    end
    first = math.max(first, row)
  end
  return parts
end

--- Close the completion menu, which would otherwise apply to removed text.
local function close_menu()
  if vim.fn.pumvisible() == 1 then
    vim.fn.complete(vim.fn.col('.'), {})
  end
end

--- Break the line as <CR> does in insert mode without our keys. The entry that is selected in the menu is accepted.
function M.break_line()
  local accept = vim.fn.pumvisible() == 1 and '<C-y>' or ''
  api.nvim_feedkeys(vim.keycode(accept .. '<CR>'), 'ni', false)
end

--- Send the text, without trailing blank lines. `send` returns whether it has accepted the lines.
---@param send fun(lines: string[]): boolean
function Prompt:send(send)
  local lines, parts = self:lines(), self:parts()
  if #parts == 0 then
    return
  end
  close_menu()
  self:replace({ '' })
  for i, part in ipairs(parts) do
    if send(part) then
      self.history_index, self.draft = nil, nil
      prompt_history.add(table.concat(part, '\n'))
    elseif #parts == 1 then
      return self:set(lines)
    else
      return self:put_back(vim.tbl_map(function(rest)
        return table.concat(rest, '\n')
      end, vim.list_slice(parts, i)))
    end
  end
  if api.nvim_buf_is_loaded(self.buf) then -- a command may have closed the session
    self:draw_placeholder()
  end
end

--- Step through earlier prompts. After the newest comes the text typed before.
---@private
---@param step -1|1
function Prompt:recall(step)
  local entries = prompt_history.entries()
  local index = (self.history_index or #entries + 1) + step
  if index < 1 or index > #entries + 1 then
    return
  end
  if not self.history_index or table.concat(self:lines(), '\n') ~= entries[self.history_index] then
    self.draft = self:lines() -- keep unsent text while browsing
  end
  if index > #entries then
    self.history_index = nil
    self:set(self.draft or { '' })
  else
    self.history_index = index
    self:set(vim.split(entries[index], '\n', { plain = true }))
  end
end

--- Move in the completion menu if it is open, else to another line of the text, else through the prompt history.
---@param step -1|1
function Prompt:recall_or_move(step)
  local lnum = vim.fn.line('.')
  local edge = step < 0 and 1 or vim.fn.line('$')
  if vim.fn.pumvisible() == 0 and lnum == edge then
    self:recall(step)
    return
  end
  local select, move = '<C-n>', '<Down>'
  if step < 0 then
    select, move = '<C-p>', '<Up>'
  end
  local keys = vim.fn.pumvisible() == 1 and select or move
  local count = vim.v.count > 0 and vim.v.count or ''
  api.nvim_feedkeys(count .. vim.keycode(keys), 'ni', false) -- inserted before other typed or recorded keys
end

--- Replace pasted lines of an open file by a mention.
function Prompt:mention_pasted()
  if pasted.mention(self.buf) then
    self:draw_placeholder()
  end
end

--- Update the notes next to mentions.
---@private
function Prompt:note_mentions()
  local has_some = table.concat(self:lines()):find('@', 1, true) ~= nil
  if has_some or self.has_notes then
    noting.update(self.buf)
  end
  self.has_notes = has_some
end

--- Show hints in an empty prompt, and notes next to mentions in any other.
function Prompt:draw_placeholder()
  if not self.plain then
    self:note_mentions()
  end
  api.nvim_buf_clear_namespace(self.buf, ns, 0, -1)
  if api.nvim_buf_line_count(self.buf) > 1 or self:lines()[1] ~= '' then
    return
  end
  local is_insert = api.nvim_get_current_buf() == self.buf
    and api.nvim_get_mode().mode:find('^i') ~= nil
  local kind = self.plain or placeholder.kind_of(self.state and self.state())
  local text = placeholder.text(kind, words.width_of(self.buf), is_insert)
  api.nvim_buf_set_extmark(self.buf, ns, 0, 0, {
    virt_text = { { text, 'AgentPlaceholder' } },
    virt_text_pos = 'overlay',
  })
end

return M
