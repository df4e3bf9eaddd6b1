--- Appending to a transcript's buffer, and moving the windows that follow its end. A transcript inherits from this
--- class.
local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local scratch = require('sanderling.ui.scratch')

local ns = api.nvim_create_namespace('sanderling')

---@class sanderling.transcript.Writer
local Writer = {}

--- The namespace of all marks that belong to the text and move with it.
Writer.NS = ns

blocks.register({ rows = { last = { of = {} } } })

--- Change the buffer, which is not modifiable for anyone else.
---@param change fun()
function Writer:modify(change)
  scratch.quietly(function()
    vim.bo[self.buf].modifiable = true
    local ok, err = pcall(change)
    vim.bo[self.buf].modifiable = false
    if not ok then
      error(err, 0)
    end
  end)
end

local function is_in_last_fold(win, lnum, last_lnum)
  return api.nvim_win_call(win, function()
    return vim.fn.foldclosedend(lnum) == last_lnum
  end)
end

--- Return the windows that follow the text: those with the cursor at its end. A selection or a pending operator must
--- not grow, so a window with one does not follow.
---@return sanderling.transcript.Follower[]
function Writer:followers()
  local followers = {} ---@type sanderling.transcript.Follower[]
  local current = api.nvim_get_current_win()
  local last_fold = self.folds[#self.folds]
  local ends_in_fold = last_fold and last_fold.last == self.last
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    local lnum, col = unpack(api.nvim_win_get_cursor(win))
    local is_last = lnum == self.last + 1
      or (ends_in_fold and lnum > last_fold.first and is_in_last_fold(win, lnum, self.last + 1))
    local is_busy = win == current and api.nvim_get_mode().mode:find('^[vVsS\22\19]') ~= nil
      or win == current and vim.startswith(api.nvim_get_mode().mode, 'no')
    if is_last and not is_busy then
      local is_at_end = col >= self.col - 1
        or vim.fn.screenpos(win, self.last + 1, math.max(self.col, 1)).row > 0
      followers[#followers + 1] = { win = win, is_at_end = is_at_end }
    end
  end
  return followers
end

---@param row integer
---@return string
function Writer:line(row)
  return api.nvim_buf_get_lines(self.buf, row, row + 1, true)[1]
end

--- Append `text` after the last character.
---@param text string
function Writer:append(text)
  local count = api.nvim_buf_line_count(self.buf) - 1
  if count ~= self.last then -- something else wrote into the buffer
    self.last = count
    self.col = #self:line(count)
  end
  local lines = vim.split(text, '\n', { plain = true })
  local followers = self:followers()
  self:modify(function()
    -- Two steps, because splitting the last line of a fold would move it out of the fold.
    if lines[1] ~= '' or #lines == 1 then
      api.nvim_buf_set_text(self.buf, self.last, self.col, self.last, self.col, { lines[1] })
    end
    if #lines > 1 then
      api.nvim_buf_set_lines(self.buf, self.last + 1, self.last + 1, true, vim.list_slice(lines, 2))
    end
  end)
  if #lines > 1 then
    self.before = #lines == 2 and self.col + #lines[1] or #lines[#lines - 1]
    self.last = self.last + #lines - 1
    self.col = #lines[#lines]
  else
    self.col = self.col + #text
  end
  for _, follower in ipairs(followers) do
    if #lines > 1 or follower.is_at_end then
      api.nvim_win_set_cursor(follower.win, { self.last + 1, self.col })
    end
  end
end

--- Append `text`, without line breaks, to `row`.
---@param row integer
---@param text string
---@return integer col start of the text
function Writer:append_to_row(row, text)
  if row == self.last then
    local col = self.col
    self:append(text)
    return col
  end
  local col = #self:line(row)
  self:modify(function()
    api.nvim_buf_set_text(self.buf, row, col, row, col, { text })
  end)
  if row == self.last - 1 then
    self.before = col + #text
  end
  return col
end

--- Replace the text of `row` by `text`, without line breaks.
---@param row integer
---@param text string
function Writer:replace_row(row, text)
  local col = #self:line(row)
  self:modify(function()
    api.nvim_buf_set_text(self.buf, row, 0, row, col, { text })
  end)
  if row == self.last then
    self.col = #text
  elseif row == self.last - 1 then
    self.before = #text
  end
end

--- Insert `text` into the open thinking block. Its fold includes one more line, because lines inserted inside a fold
--- extend it.
---@param text string
function Writer:grow_thinking(text)
  local open = assert(self.open)
  local lines = vim.split(text, '\n', { plain = true })
  local followers = self:followers()
  self:modify(function()
    -- One step: splitting a line inside the fold extends it, inserting lines before its last one does not.
    api.nvim_buf_set_text(self.buf, open.row, open.col, open.row, open.col, lines)
  end)
  open.col = #lines > 1 and #lines[#lines] or open.col + #text
  open.row = open.row + #lines - 1
  self.last = self.last + #lines - 1
  open.fold.last = self.last
  for _, follower in ipairs(followers) do
    if not is_in_last_fold(follower.win, self.last + 1, self.last + 1) then
      api.nvim_win_set_cursor(follower.win, { self.last + 1, 0 })
    end
  end
end

--- Return the line breaks that separate a new block from the previous text by one blank line.
---@return string
function Writer:separator()
  local last_fold = self.folds[#self.folds]
  if self.last == 0 and self.col == 0 then
    return ''
  elseif last_fold and last_fold.last >= self.last - 1 and self.col == 0 then
    return '\n' -- the fold's last line is blank already, or it ends the text
  elseif self.col > 0 then
    return '\n\n'
  end
  return self.before > 0 and '\n' or ''
end

--- Start a block with `text`.
---@param text string
---@param hl? string
---@param is_close? boolean without a blank line above
---@return integer first row of the block
function Writer:append_block(text, hl, is_close)
  local separator = is_close and '' or self:separator()
  local first = self.last + #separator
  self:append(separator .. text)
  if hl then
    self:paint(first, self.last, hl)
  end
  return first
end

---@param first integer row
---@param last integer row
---@param hl string
---@param grows? boolean include text added at the end later
function Writer:paint(first, last, hl, grows)
  local length = #self:line(last)
  api.nvim_buf_set_extmark(self.buf, ns, first, 0, {
    end_row = last,
    end_col = length,
    end_right_gravity = grows or false,
    hl_group = hl,
    hl_eol = true,
  })
end

--- Append output of a command or tool to its open block.
---@param open sanderling.transcript.OpenBlock
---@param text string
function Writer:append_output(open, text)
  if not open.output_row then -- below the header or a remark
    self:append('\n' .. text)
    open.output_row = self.last - select(2, text:gsub('\n', ''))
  else
    self:append(text)
  end
  open.output_mark = api.nvim_buf_set_extmark(self.buf, ns, open.output_row, 0, {
    id = open.output_mark,
    end_row = self.last,
    end_col = self.col,
    hl_group = 'AgentOutput',
  })
end

---@param text string
---@param hl string
---@return integer first row of the lines
function Writer:append_lines(text, hl)
  local row = self.col > 0 and self.last + 1 or self.last
  self:append((self.col > 0 and '\n' or '') .. text)
  self:paint(row, self.last, hl)
  return row
end

return Writer
