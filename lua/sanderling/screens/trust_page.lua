--- The page of :Agent trust: a list of the files, the question, and each file in full.
local M = {}

local api = vim.api
local icons = require('sanderling.ui.icons')
local scratch = require('sanderling.ui.scratch')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_trust')

---@return string the prefix of each line of a file, so that no line can pass for one of ours
function M.bar()
  return icons.narrow('bar') .. ' '
end

---@class (exact) sanderling.screens.trust.View
---@field session sanderling.chat.session.Session
---@field buf integer
---@field came_from integer window
---@field was_inserting boolean opened from insert mode
---@field since integer when it was opened
---@field keys [integer, integer] when the last two keys were typed on it
---@field project string
---@field files sanderling.TrustFile[]
---@field refusal? string
---@field is_marked table<string, boolean> by path
---@field first_row integer of the list of files
---@field question_row integer
---@field sections integer[] row of the header of each file

--- In a line they precede the name, which may contain any text.
---@type table<string, { column: string, words: string, hl: string }>
local states = {
  new = { column = 'new    ', words = 'New', hl = 'AgentNotice' },
  changed = { column = 'changed', words = 'Changed since you trusted it', hl = 'AgentWarning' },
  trusted = { column = 'trusted', words = 'Trusted', hl = 'AgentStatus' },
}

---@param self sanderling.screens.trust.View
---@param file sanderling.TrustFile
---@return string
local function box_of(self, file)
  return self.is_marked[file.path] and icons.completed or icons.pending
end

---@param self sanderling.screens.trust.View
---@param file sanderling.TrustFile
---@return string
local function list_line(self, file)
  local box = self.refusal and ' ' or box_of(self, file)
  local path = words.plain(unseen.visible(file.path))
  return ('%s %s  %s'):format(box, states[file.state].column, path)
end

---@param self sanderling.screens.trust.View
---@return string[] lines above the list
local function introduction(self)
  return {
    'The project ' .. words.plain(self.project),
    '',
    'These files instruct the model, or configure Sanderling itself.',
    'Each is ignored until you trust it as shown here, and again when it changes.',
    '',
  }
end

---@param self sanderling.screens.trust.View
---@return string
function M.question(self)
  return #self.files == 1 and 'Trust this file as shown?'
    or ('Trust these %d files as shown?'):format(#self.files)
end

---@param file sanderling.TrustFile
---@return string[]
local function lines_of(file)
  local text = file.text or ''
  return text == '' and {} or words.lines_of(text)
end

---@param file sanderling.TrustFile
---@return string[] lines on what the model could then do without asking
local function allowed_lines(file)
  if not file.allowed then
    return {}
  end
  local path = words.plain(unseen.visible(file.path))
  local lines = { '', path .. ' lets the model do this without asking you:' }
  for _, sentence in ipairs(file.allowed) do
    lines[#lines + 1] = M.bar() .. words.plain(sentence)
  end
  return lines
end

---@param self sanderling.screens.trust.View
---@return string[]
local function page(self)
  local lines = introduction(self)
  self.first_row = #lines
  for _, file in ipairs(self.files) do
    lines[#lines + 1] = list_line(self, file)
  end
  for _, file in ipairs(self.files) do
    vim.list_extend(lines, allowed_lines(file))
  end
  vim.list_extend(lines, { '', self.refusal or M.question(self) })
  self.question_row = #lines - 1
  for i, file in ipairs(self.files) do
    local text = lines_of(file)
    lines[#lines + 1] = ''
    self.sections[i] = #lines
    local facts = ('%s, %s'):format(states[file.state].words, words.counted(#text, 'line'))
    lines[#lines + 1] = ('%s: %s'):format(facts, words.plain(unseen.visible(file.path)))
    for _, line in ipairs(text) do
      lines[#lines + 1] = M.bar() .. unseen.visible(line)
    end
  end
  return lines
end

---@param self sanderling.screens.trust.View
---@param row integer
---@param hl string
local function paint(self, row, hl)
  api.nvim_buf_set_extmark(self.buf, ns, row, 0, {
    end_row = row + 1,
    hl_group = hl,
    strict = false,
  })
end

---@param self sanderling.screens.trust.View
---@param i integer of the file
local function paint_list_line(self, i)
  local file, row = self.files[i], self.first_row + i - 1
  local state = states[file.state]
  local col = #(self.refusal and ' ' or box_of(self, file)) + 1
  local mark = { end_col = col + #state.column, hl_group = state.hl }
  api.nvim_buf_set_extmark(self.buf, ns, row, col, mark)
end

--- Highlight the numbers that replace invisible characters in a file's text.
---@param self sanderling.screens.trust.View
---@param lines string[]
local function paint_invisible(self, lines)
  for i = self.sections[1] + 1, #lines do
    local from = 1
    while true do
      local first, last = lines[i]:find('<U%+%x+>', from)
      if not first then
        break
      end
      local mark = { end_col = last, hl_group = 'AgentWarning' }
      api.nvim_buf_set_extmark(self.buf, ns, i - 1, first - 1, mark)
      from = last + 1
    end
  end
end

---@param self sanderling.screens.trust.View
function M.draw(self)
  local lines = page(self)
  api.nvim_buf_set_lines(self.buf, 0, -1, true, lines)
  scratch.set_buf_options(self.buf, { modifiable = false })
  paint(self, 0, 'AgentUser')
  for row = self.first_row + #self.files + 1, self.question_row - 2 do
    paint(self, row, 'AgentWarning')
  end
  paint(self, self.question_row, self.refusal and 'AgentError' or 'AgentApprovalTitle')
  for i in ipairs(self.files) do
    paint_list_line(self, i)
    paint(self, self.sections[i], 'AgentUser')
  end
  paint_invisible(self, lines)
end

--- Redraw the mark of file `i`.
---@param self sanderling.screens.trust.View
---@param i integer
function M.redraw_box(self, i)
  local file, row = self.files[i], self.first_row + i - 1
  local old = self.is_marked[file.path] and icons.pending or icons.completed
  scratch.set_buf_options(self.buf, { modifiable = true })
  api.nvim_buf_clear_namespace(self.buf, ns, row, row + 1)
  api.nvim_buf_set_text(self.buf, row, 0, row, #old, { box_of(self, file) })
  scratch.set_buf_options(self.buf, { modifiable = false })
  paint_list_line(self, i)
end

--- Return the file at the cursor: its line in the list, or its text.
---@param self sanderling.screens.trust.View
---@return integer?
function M.index_at_cursor(self)
  local row = api.nvim_win_get_cursor(0)[1] - 1
  local index
  for i, header in ipairs(self.sections) do
    if row == self.first_row + i - 1 or row >= header then
      index = i
    end
  end
  return index
end

return M
