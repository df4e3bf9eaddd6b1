--- The footer below the text of a transcript: what the last turn took, the retry countdown, queued prompts and the
--- like.
---
--- It consists of virtual lines of the last row, so it moves no rows and is neither copied nor found by a search.
local M = {}

local api = vim.api
local scroll = require('sanderling.ui.scroll')
local words = require('sanderling.ui.words')

local ns = api.nvim_create_namespace('sanderling_footer')
local ORDER = { 'took', 'connection', 'retry', 'looking', 'waiting' }

---@alias sanderling.transcript.footer.Lines [string, string][][] in the format of virt_lines

---@class (exact) sanderling.transcript.footer.Footer
---@field buf integer
---@field private parts table<string, sanderling.transcript.footer.Lines>
---@field private mark? integer
local Footer = {}
Footer.__index = Footer

---@param buf integer of a transcript
---@return sanderling.transcript.footer.Footer
function M.new(buf)
  return setmetatable({ buf = buf, parts = {} }, Footer)
end

--- Return the width of the narrowest window, in cells.
---@return integer
function Footer:width()
  local cells = vim.o.columns
  for _, win in ipairs(vim.fn.win_findbuf(self.buf)) do
    cells = math.min(cells, words.cells_in(win))
  end
  return cells
end

--- Wrap `text` to the width of the narrowest window.
---@param text string
---@param hl string
---@return sanderling.transcript.footer.Lines
function Footer:wrapped(text, hl)
  return vim.tbl_map(function(line)
    return { { line, hl } }
  end, words.wrapped(text, self:width()))
end

--- Set the part `name` to `lines`, or remove it.
---@param name 'took'|'connection'|'retry'|'looking'|'waiting'
---@param lines? sanderling.transcript.footer.Lines
function Footer:set(name, lines)
  self.parts[name] = lines
  self:draw()
end

--- Draw all parts below the last row.
function Footer:draw()
  local lines = {} ---@type sanderling.transcript.footer.Lines
  for _, name in ipairs(ORDER) do
    if self.parts[name] then
      lines[#lines + 1] = { { '', 'AgentStatus' } }
      vim.list_extend(lines, self.parts[name])
    end
  end
  if #lines > 0 then
    local last = api.nvim_buf_line_count(self.buf) - 1
    self.mark =
      api.nvim_buf_set_extmark(self.buf, ns, last, 0, { id = self.mark, virt_lines = lines })
  elseif self.mark then
    api.nvim_buf_del_extmark(self.buf, ns, self.mark)
    self.mark = nil
  end
end

---@return boolean
function Footer:is_empty()
  return self.mark == nil
end

---@param win integer
---@return boolean
local function shows_rest(win)
  local top = vim.fn.line('w0', win) - 1
  return api.nvim_win_text_height(win, { start_row = top }).all <= vim.fn.getwininfo(win)[1].height
end

--- Redraw the footer below new text, and scroll it into view in `wins`, whose cursor is in the last line.
---@param wins integer[]
function Footer:follow(wins)
  self:draw()
  for _, win in ipairs(wins) do
    if not shows_rest(win) then
      api.nvim_win_call(win, scroll.put_last)
    end
  end
end

return M
