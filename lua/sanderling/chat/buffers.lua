--- The buffers of a session: its transcript, and its prompt unless the session is hidden. If someone deletes or empties
--- them, their text is restored.
local api = vim.api
local config = require('sanderling.config')
local lazy = require('sanderling.ui.lazy')

local prompt = require('sanderling.prompt')
local prompt_history = lazy('sanderling.prompt.history')
local scratch = require('sanderling.ui.scratch')
local todo = require('sanderling.prompt.todo')
local transcripts = require('sanderling.transcript')
local words = require('sanderling.ui.words')

local M = {}

local hint_ns = api.nvim_create_namespace('sanderling_hint')

---@class (exact) sanderling.chat.buffers.Buffers
---@field id string of the session
---@field state sanderling.session.state.State the state after its events
---@field transcript sanderling.transcript.Transcript shown in the chat's windows
---@field transcript_buf integer
---@field prompt? sanderling.prompt.Prompt nil: a hidden session, which no chat shows
---@field todo sanderling.prompt.todo.Todo
---@field is_fresh boolean nothing has been sent or run in it
---@field protected hint? string shown in an empty transcript
---@field private is_live fun(): boolean the session is open
---@field private on_lost fun()
---@field private lost table<integer, sanderling.ui.scratch.Copy> contents of buffers that were deleted or emptied
local Buffers = {}
M.Buffers = Buffers

---@param buf integer
---@param filetype string
local function set_up_buffer(buf, filetype)
  scratch.set_buf_options(buf, { bufhidden = 'hide' })
  scratch.set_filetype(buf, filetype)
end

-- Plugins for smooth scrolling take each jump of a window back and repeat it line by line, with the cursor. When text
-- arrives meanwhile, they stop halfway: the cursor has left the end, and the window no longer follows. A window cannot
-- follow by memory instead of by its cursor: scrolling by the plugin looks like scrolling with the mouse. The lines of
-- mini.indentscope mean nothing in an answer. These variables are the plugins' only way to leave a buffer out; unlike
-- others, which leave out a 'buftype' like ours, they have no neutral one.
local LEFT_OUT =
  { snacks_scroll = false, minianimate_disable = true, miniindentscope_disable = true }

---@return integer
local function new_transcript_buffer()
  local buf = scratch.new('')
  for name, value in pairs(LEFT_OUT) do
    vim.b[buf][name] = value -- first, so that a FileType autocommand of the user's can change it
  end
  local is_rendered_by_others = config.options.chat.markdown == 'treesitter'
  if is_rendered_by_others then
    vim.treesitter.language.register('markdown', 'sanderling') -- before FileType, at which plugins look for a parser
  end
  set_up_buffer(buf, 'sanderling')
  if is_rendered_by_others then
    vim.treesitter.start(buf, 'markdown')
  end
  scratch.set_buf_options(buf, { undolevels = -1, modifiable = false })
  return buf
end

---@private
---@return sanderling.prompt.Prompt
function Buffers:new_prompt()
  local buf = scratch.new('prompt')
  set_up_buffer(buf, 'sanderling_prompt')
  return prompt.new(buf, function()
    return self.state
  end)
end

--- Return the hints for a first prompt, shown in an empty transcript.
---@return string[]
local function ways_to_begin()
  local keys = config.key_name(config.options.keys.show_keys, ':help sanderling-keys')
  return {
    'Ask a question, or say what to change.',
    'Type / for commands, @ to attach files or diagnostics, !command to run a command in the sandbox.',
    keys .. ' lists the keys.',
  }
end

--- Create the transcript's buffer.
---@protected
---@param is_live fun(): boolean the session is open
---@param on_lost fun() a buffer was deleted or emptied; call `restore` as soon as text may be changed
function Buffers:make_buffers(is_live, on_lost)
  self.transcript_buf = new_transcript_buffer()
  self.lost, self.is_live, self.on_lost = {}, is_live, on_lost
  self.todo = todo.new(function()
    return self.state
  end)
  self:guard(self.transcript_buf)
end

function Buffers:make_prompt()
  self.prompt = self:new_prompt()
  self.todo.buf = self.prompt.buf
  vim.b[self.prompt.buf].sanderling_session = self.id
  self:guard(self.prompt.buf)
end

--- Keep a copy of `buf` when it is deleted or emptied.
---@private
---@param buf integer
function Buffers:guard(buf)
  scratch.guard(buf, function(copied)
    if self.is_live() then
      self.lost[buf] = copied
      if buf == self.transcript_buf then
        self.transcript:go_away()
      end
      self.on_lost()
    end
  end)
end

--- Restore the contents of `buf`, in a new buffer if it was deleted.
---@private
---@param buf integer
---@param renew fun(): integer creates a new buffer and makes it the session's
---@return integer
function Buffers:restore_buffer(buf, renew)
  local is_deleted = not api.nvim_buf_is_loaded(buf)
  local restored = buf
  if is_deleted then
    pcall(api.nvim_buf_delete, buf, { force = true }) -- the new buffer takes its name
    restored = renew()
    vim.b[restored].sanderling_session = self.id
  end
  scratch.paste(self.lost[buf], restored)
  self:guard(restored)
  self.lost[buf] = nil
  return restored
end

--- Restore deleted or emptied buffers. May raise an error while text is locked.
---@return boolean are_new some buffers were replaced
function Buffers:restore()
  local before = self:buffers()
  if self.prompt and self.lost[self.prompt.buf] then
    self:restore_buffer(self.prompt.buf, function()
      self.prompt = self:new_prompt()
      self.todo.buf = self.prompt.buf
      return self.prompt.buf
    end)
  end
  if self.lost[self.transcript_buf] then
    self.transcript_buf = self:restore_buffer(self.transcript_buf, new_transcript_buffer)
    self.transcript:come_back(self.transcript_buf)
  end
  return not vim.deep_equal(before, self:buffers())
end

---@return integer[]
function Buffers:buffers()
  return { self.transcript_buf, self.prompt and self.prompt.buf }
end

--- Delete the buffers. The text of the prompt is kept in the prompt history.
function Buffers:delete_buffers()
  if self.prompt and api.nvim_buf_is_loaded(self.prompt.buf) then
    local text = words.trimmed(table.concat(self.prompt:lines(), '\n'))
    if text ~= '' then
      prompt_history.add(text)
    end
  end
  transcripts.forget(self.transcript_buf)
  for _, buf in ipairs(self:buffers()) do
    pcall(api.nvim_buf_delete, buf, { force = true })
  end
end

---@return boolean no buffer is deleted or emptied
function Buffers:is_whole()
  return next(self.lost) == nil
end

---@return boolean a window of this tab page shows the transcript
function Buffers:is_on_screen()
  return vim.list_contains(vim.fn.tabpagebuflist(), self.transcript_buf)
end

--- Remove the hint before text arrives. Otherwise a window would keep empty rows in place of its lines.
function Buffers:clear_hint()
  if self.is_fresh and api.nvim_buf_is_loaded(self.transcript_buf) then
    api.nvim_buf_clear_namespace(self.transcript_buf, hint_ns, 0, -1)
  end
end

--- Show how to begin, if nothing has been sent yet.
function Buffers:draw_hint()
  if not api.nvim_buf_is_loaded(self.transcript_buf) then
    return
  end
  api.nvim_buf_clear_namespace(self.transcript_buf, hint_ns, 0, -1)
  local row = api.nvim_buf_line_count(self.transcript_buf) - 1
  local is_empty = row == 0 and api.nvim_buf_get_lines(self.transcript_buf, 0, 1, true)[1] == ''
  local texts = vim.list_extend(is_empty and ways_to_begin() or {}, { self.hint })
  if self.is_fresh and #texts > 0 then
    local lines, width = { { { '' } } }, words.width_of(self.transcript_buf)
    for _, text in ipairs(texts) do
      for _, line in ipairs(words.wrapped(text, width)) do
        lines[#lines + 1] = { { line, 'AgentPlaceholder' } }
      end
    end
    api.nvim_buf_set_extmark(self.transcript_buf, hint_ns, row, 0, { virt_lines = lines })
  end
end

--- Show `text` below the transcript until something is sent.
---@param text string
function Buffers:set_hint(text)
  self.hint = text
  self:draw_hint()
end

function Buffers:set_used()
  if self.is_fresh then
    self.is_fresh = false
    self:draw_hint()
  end
end

return M
