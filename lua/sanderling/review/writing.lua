--- Writing: what is proposed in a buffer never reaches the disk. While something is, writing it is ours: the person's own text is in
--- the buffer for as long as Neovim writes, with all of its hooks and checks; then what is proposed is laid in again.
---
--- An autocommand that does not nest runs no others, so that a write in it would not come here. Such buffers are "acwrite": then
--- Neovim writes nothing without us.
local M = {}

local api = vim.api
local lifting = require('sanderling.review.lifting')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')

local GROUP = 'sanderling_proposals' -- editing/find.lua knows it, too
local group = api.nvim_create_augroup(GROUP, {})

---@type fun(buf: integer) called when a write is over, with the person's own text in the buffer
local on_written
---@type fun(lifted: sanderling.review.lifting.Lifted) called before a write that keeps the undo tree with the file
local on_lifted

--- The lines of the person's own text among those from `first` to `last`, counted from 1.
---@param buf integer
---@param first integer
---@param last integer
---@return integer first
---@return integer last one less than the first: there are none
local function own_range(buf, first, last)
  local function place_of(row)
    local shift = 0
    for _, part in ipairs((lifting.parts(buf))) do
      local start = part.hunk.row + shift
      if row <= start then
        break
      elseif row < start + #part.new then
        return part.hunk.row + math.min(row - start, #part.hunk.old)
      end
      shift = shift + #part.new - #part.hunk.old
    end
    return row - shift
  end
  return place_of(first - 1) + 1, place_of(last)
end

---@param args { event: string, buf: integer, match: string, file: string }
---@param range string
---@return string
local function command_of(args, range)
  local is_own = args.event == 'BufWriteCmd' and args.match == api.nvim_buf_get_name(args.buf)
  return table.concat({
    'lockmarks',
    -- The person was asked before this if another file may be overwritten.
    ('%swrite%s'):format(range, (not is_own or vim.v.cmdbang == 1) and '!' or ''),
    vim.v.cmdarg,
    args.event == 'FileAppendCmd' and '>>' or '',
    is_own and '' or vim.fn.fnameescape(args.file),
  }, ' ')
end

--- Run `fn`, which writes the buffer, on the user's own text.
---@generic T
---@param buf integer
---@param fn fun(): T
---@return T
function M.aside(buf, fn)
  M.release(buf)
  local lifted = lifting.lift(buf)
  if vim.bo[buf].undofile then
    local was_modified = vim.bo[buf].modified
    log.guarded(on_lifted, lifted)
    vim.bo[buf].modified = was_modified
  end
  local ok, value = pcall(fn)
  log.guarded(on_written, buf)
  local is_modified = api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified
  lifting.lay(lifted)
  if api.nvim_buf_is_loaded(buf) then
    vim.bo[buf].modified = is_modified
    M.guard(buf)
  end
  if not ok then
    error(value, 0)
  end
  return value
end

---@param args { event: string, buf: integer, match: string, file: string }
local function write(args)
  local range = ''
  if args.event ~= 'BufWriteCmd' then
    local first, last = own_range(args.buf, vim.fn.line("'["), vim.fn.line("']"))
    if last < first then
      return
    end
    range = ('%d,%d'):format(first, last)
  end
  local cmd = command_of(args, range)
  local ok, err = pcall(M.aside, args.buf, function()
    vim.cmd(cmd)
  end)
  if not ok then
    message.tell((tostring(err):gsub('^.-(E%d+:)', '%1')), vim.log.levels.ERROR)
  end
end

--- Write only the person's own text of the buffer from now on.
---@param buf integer
function M.guard(buf)
  M.release(buf)
  vim.b[buf].sanderling_proposed = true
  scratch.set_buf_options(buf, { buftype = 'acwrite' })
  api.nvim_create_autocmd({ 'BufWriteCmd', 'FileWriteCmd', 'FileAppendCmd' }, {
    group = group,
    buffer = buf,
    nested = true,
    desc = 'Agent: what is proposed is not written',
    callback = write,
  })
end

---@param buf integer
function M.release(buf)
  if api.nvim_buf_is_valid(buf) and vim.b[buf].sanderling_proposed then
    api.nvim_clear_autocmds({ group = group, buffer = buf })
    vim.b[buf].sanderling_proposed = nil
    scratch.set_buf_options(buf, { buftype = '' })
  end
end

---@param fn fun(lifted: sanderling.review.lifting.Lifted)
function M.on_lifted(fn)
  on_lifted = fn
end

---@param fn fun(buf: integer)
function M.on_written(fn)
  on_written = fn
end

return M
