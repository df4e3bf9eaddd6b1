--- Writes at the end of a transcript's buffer, and keeps the windows there that go along with it. A transcript is a writer.
local api = vim.api
local blocks = require('sanderling.transcript.blocks')
local scratch = require('sanderling.ui.scratch')

local ns = api.nvim_create_namespace('sanderling')

---@class sanderling.transcript.Writer
local Writer = {}

--- The one namespace of all marks that belong to the text, and go along with it.
Writer.NS = ns

blocks.register({ rows = { last = { of = {} } } })

--- Change the buffer, which nobody else may.
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

--- Is `lnum` of `win` inside a closed fold that ends the buffer?
local function is_in_last_fold(win, lnum, last_lnum)
  return api.nvim_win_call(win, function()
    return vim.fn.foldclosedend(lnum) == last_lnum
  end)
end

--- The windows that go along with the text: their cursor is at the end. A selection or a pending operator must not grow.
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

--- Put `text` behind the last character.
---@param text string
function Writer:append(text)
  local count = api.nvim_buf_line_count(self.buf) - 1
  if count ~= self.last then -- somebody else wrote here
    self.last = count
    self.col = #self:line(count)
  end
  local lines = vim.split(text, '\n', { plain = true })
  local followers = self:followers()
  self:modify(function()
    -- Two steps, because a fold that ends in the last line would lose it if that line were split.
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

--- Put `text`, without line breaks, behind what stands in `row`.
---@param row integer
---@param text string
---@return integer col where it begins
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

--- Have `text`, without line breaks, stand in `row` instead of what does.
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

--- Put `text` into the open thinking block, whose fold keeps a line behind it: lines inserted into a fold grow it.
---@param text string
function Writer:grow_thinking(text)
  local open = assert(self.open)
  local lines = vim.split(text, '\n', { plain = true })
  local followers = self:followers()
  self:modify(function()
    -- One step: the fold grows with a line of it that is split, but not with lines put before its last one.
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

--- The line breaks before a new block, so that one blank line separates it from the text before.
---@return string
function Writer:separator()
  local last_fold = self.folds[#self.folds]
  if self.last == 0 and self.col == 0 then
    return ''
  elseif last_fold and last_fold.last >= self.last - 1 and self.col == 0 then
    return '\n' -- the fold's own last line is the blank one, or its line ends the text
  elseif self.col > 0 then
    return '\n\n'
  end
  return self.before > 0 and '\n' or ''
end

--- Begin a block with `text`, whose highlight is `hl` where it has one.
---@param text string
---@param hl? string
---@param is_close? boolean to what stands above it
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
---@param grows? boolean text that is added at the end belongs to it too
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

--- Add what a command or a tool puts out to its block, which is open.
---@param open sanderling.transcript.OpenBlock
---@param text string
function Writer:append_output(open, text)
  if not open.output_row then -- below the header, or below a remark
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

--- Add lines of our own to the block at the end.
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
