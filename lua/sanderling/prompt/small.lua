--- The small prompt: a float at the code that a question is about, with the same features as the chat's prompt: several
--- lines, mentions, commands, history.
local M = {}

local api = vim.api
local files = require('sanderling.access.files')
local float = require('sanderling.ui.float')
local page = require('sanderling.access.page')
local prompts = require('sanderling.prompt')
local scratch = require('sanderling.ui.scratch')
local words = require('sanderling.ui.words')

local MIN_ROWS, MAX_ROWS, MAX_CELLS, MIN_CELLS = 3, 10, 80, 20
local BORDERS = 2

---@class (exact) sanderling.prompt.small.Opts
---@field title string
---@field plain? sanderling.prompt.Plain
---@field session_id? string session of the question, whose commands are completed
---@field lines? string[] to edit
---@field row integer row of the current buffer, the float is below it
---@field on_send fun(lines: string[])
---@field on_leave fun() closed without sending

---@return integer rows of an empty prompt
function M.rows()
  return MIN_ROWS + BORDERS
end

--- Return the position of the float, below a visible row.
---@param win integer
---@param row integer
---@param height integer
---@return vim.api.keyset.win_config
local function place(win, row, height)
  local seen = api.nvim_win_call(win, function()
    return math.max(vim.fn.line('w0'), math.min(row + 1, vim.fn.line('w$'))) - 1
  end)
  local room = api.nvim_win_get_width(win) - BORDERS - 2
  return {
    relative = 'win',
    win = win,
    bufpos = { seen, 0 },
    width = math.max(MIN_CELLS, math.min(MAX_CELLS, room)),
    height = math.max(MIN_ROWS, math.min(height, MAX_ROWS)),
  }
end

--- Return a footer with the keys of the current mode.
---@param opts sanderling.prompt.small.Opts
---@param is_insert boolean
---@return vim.api.keyset.win_config
local function footer(opts, is_insert)
  local does = opts.plain == 'comment' and 'keeps it' or 'sends'
  local named = { { 'send_normal', does }, { 'close', 'closes' }, { 'show_keys', 'keys' } }
  return {
    footer = float.naming(is_insert and { { 'send_insert', does } } or named),
    footer_pos = 'right',
  }
end

---@param opts sanderling.prompt.small.Opts
---@return vim.api.keyset.win_config
local function looks(opts)
  return vim.tbl_extend('error', footer(opts, true), {
    style = 'minimal',
    border = 'rounded',
    title = (' %s '):format(words.plain(opts.title)),
    zindex = float.ZINDEX.above,
  })
end

---@param opts sanderling.prompt.small.Opts
---@return sanderling.prompt.Prompt
local function new_prompt(opts)
  local buf = scratch.new('question')
  scratch.set_buf_options(buf, { bufhidden = 'wipe' })
  scratch.set_filetype(buf, 'sanderling_prompt')
  vim.b[buf].sanderling_session = opts.session_id
  files.guard(buf)
  return prompts.new(buf, nil, opts.plain)
end

--- Call `fn` in normal mode, leaving insert mode first.
---@param fn fun()
local function out_of_insert(fn)
  if api.nvim_get_mode().mode:find('^[iR]') then
    api.nvim_feedkeys(vim.keycode('<Esc>'), 'ni', false)
    vim.schedule(fn)
  else
    fn()
  end
end

---@param prompt sanderling.prompt.Prompt
---@param win integer
---@param from integer
---@param opts sanderling.prompt.small.Opts
local function set_keys(prompt, win, from, opts)
  local is_sent = false
  local function send()
    if is_sent or not table.concat(prompt:lines()):find('%S') then
      return
    end
    is_sent = true
    out_of_insert(function()
      local sent = {}
      prompt:send(function(lines)
        vim.list_extend(sent, lines)
        return true
      end)
      float.leave(win, from)
      opts.on_send(sent)
    end)
  end
  local function close()
    float.leave(win, from)
  end
  local function recall(step)
    return function()
      prompt:recall_or_move(step)
    end
  end
  page.set_keys(prompt.buf, 'ask', {
    send_normal = send,
    send_insert = send,
    line_break = prompts.break_line,
    close = close,
    close_page = close,
    history_previous = recall(-1),
    history_next = recall(1),
    mention_pasted = function()
      prompt:mention_pasted()
    end,
  })
  api.nvim_create_autocmd('BufWipeout', {
    buffer = prompt.buf,
    desc = 'Agent: handle the closed small prompt',
    callback = function()
      if not is_sent then
        vim.schedule(opts.on_leave)
      end
    end,
  })
end

--- Open the small prompt in insert mode.
---@param opts sanderling.prompt.small.Opts
---@return integer buf
function M.open(opts)
  local from = api.nvim_get_current_win()
  local prompt = new_prompt(opts)
  local wanted = vim.tbl_extend('error', place(from, opts.row, MIN_ROWS), looks(opts))
  local win = float.open(prompt.buf, true, wanted)
  scratch.set_win_options(win, { wrap = true, linebreak = true, winfixbuf = true })
  set_keys(prompt, win, from, opts)
  api.nvim_create_autocmd({ 'TextChanged', 'TextChangedI', 'TextChangedP' }, {
    buffer = prompt.buf,
    desc = 'Agent: resize the small prompt',
    callback = function()
      prompt:draw_placeholder()
      local rows = api.nvim_win_text_height(win, {}).all
      api.nvim_win_set_height(win, math.max(MIN_ROWS, math.min(rows, MAX_ROWS)))
    end,
  })
  api.nvim_create_autocmd({ 'InsertEnter', 'InsertLeave' }, {
    buffer = prompt.buf,
    desc = 'Agent: update the keys of the small prompt',
    callback = function(args)
      if api.nvim_win_is_valid(win) then
        api.nvim_win_set_config(win, footer(opts, args.event == 'InsertEnter'))
      end
    end,
  })
  prompt:set(opts.lines or { '' })
  vim.cmd.startinsert({ bang = true })
  return prompt.buf
end

return M
