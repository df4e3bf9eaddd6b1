--- Writing buffers that show a proposal, so that the proposal never reaches the disk. While Neovim writes, with all its
--- hooks and checks, the buffer contains the user's own text; then the proposal is put back.
---
--- We handle BufWriteCmd for that. A write inside an autocommand without `nested` triggers no events, so our handler
--- would be skipped. Therefore these buffers are "acwrite": then Neovim writes nothing without a handler.
local M = {}

local api = vim.api
local lift = require('sanderling.proposals.lift')
local log = require('sanderling.host.log')
local message = require('sanderling.ui.message')
local scratch = require('sanderling.ui.scratch')

local GROUP = 'sanderling_proposals' -- editing/find.lua uses this name, too
local group = api.nvim_create_augroup(GROUP, {})

---@type fun(buf: integer) called after a write, with the user's own text in the buffer
local on_written
---@type fun(lifted: sanderling.proposals.lift.Lifted) called before a write that also writes an undo file
local on_lifted

--- Convert a range of lines, counted from 1, to the user's own text.
---@param buf integer
---@param first integer
---@param last integer
---@return integer first
---@return integer last first - 1: the range is empty
local function own_range(buf, first, last)
  local function place_of(row)
    local shift = 0
    for _, part in ipairs((lift.parts(buf))) do
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
    -- If another file would be overwritten, Neovim has asked the user before this.
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
  local lifted = lift.lift(buf)
  if vim.bo[buf].undofile then
    local was_modified = vim.bo[buf].modified
    log.guarded(on_lifted, lifted)
    vim.bo[buf].modified = was_modified
  end
  local ok, value = pcall(fn)
  log.guarded(on_written, buf)
  local is_modified = api.nvim_buf_is_loaded(buf) and vim.bo[buf].modified
  lift.lay(lifted)
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
    message.tell(message.without_place(err), vim.log.levels.ERROR)
  end
end

--- From now on, write only the user's own text of the buffer.
---@param buf integer
function M.guard(buf)
  M.release(buf)
  vim.b[buf].sanderling_proposed = true
  scratch.set_buf_options(buf, { buftype = 'acwrite' })
  api.nvim_create_autocmd({ 'BufWriteCmd', 'FileWriteCmd', 'FileAppendCmd' }, {
    group = group,
    buffer = buf,
    nested = true,
    desc = 'Agent: do not write proposed changes',
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

---@param fn fun(lifted: sanderling.proposals.lift.Lifted)
function M.on_lifted(fn)
  on_lifted = fn
end

---@param fn fun(buf: integer)
function M.on_written(fn)
  on_written = fn
end

return M
