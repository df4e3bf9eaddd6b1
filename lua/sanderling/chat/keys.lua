--- What the keys of the chat's windows do, and what their command line knows besides. Nothing outside these buffers changes.
local api = vim.api
local approval = require('sanderling.review')
local config = require('sanderling.config')
local files = require('sanderling.ui.files')
local message = require('sanderling.ui.message')

local M = {}

local DESC = 'Agent: '
local INTERRUPT = '\3'
local ns = api.nvim_create_namespace('sanderling_interrupt')

--- What a person can do in the chat's windows.
---@class (exact) sanderling.chat.keys.Actions
---@field hide fun()
---@field stop_or_interrupt fun()
---@field send fun()
---@field steer fun() tell the model in the middle of its turn
---@field queue fun() show the prompts that wait
---@field switch fun(step: integer) to another session that is open
---@field cycle_mode fun()
---@field go_to_file fun()
---@field open fun() the closed fold, or else the file
---@field inspect fun()
---@field write fun() go to the prompt, in insert mode
---@field go_to_message fun(step: -1|1)
---@field recall fun(step: -1|1) through the prompts that were sent
---@field scroll fun(step: -1|1) turn the pages of the transcript
---@field go_to_end fun() of the transcript

---@param buf integer
---@param modes string|string[]
---@param key sanderling.config.Key
---@param rhs fun()
---@param desc string
local function map(buf, modes, key, rhs, desc)
  for _, lhs in ipairs(config.list_keys(key)) do
    vim.keymap.set(modes, lhs, rhs, { buffer = buf, desc = DESC .. desc })
  end
end

--- Do what a key is for; where completion shows its menu, the key belongs to that.
---@param lhs string
---@param run fun()
local function run_or_select(lhs, run)
  if vim.fn.pumvisible() == 1 then
    api.nvim_feedkeys(vim.keycode(lhs), 'ni', false)
  else
    run()
  end
end

--- Where an interrupt has ended writing, and the command that begins it again.
---@type { buf: integer, mark: integer, start: string }?
local left

--- Writing goes on where an interrupt has ended it.
function M.write_again()
  local buf, mark, start = left.buf, left.mark, left.start
  left = nil
  if api.nvim_get_current_buf() ~= buf then
    return
  end
  local row, col = unpack(api.nvim_buf_get_extmark_by_id(buf, ns, mark, {}))
  api.nvim_buf_del_extmark(buf, ns, mark)
  local line = api.nvim_buf_get_lines(buf, row, row + 1, true)[1]
  api.nvim_win_set_cursor(0, { row + 1, col })
  vim.cmd({ cmd = start, bang = col >= #line })
end

--- Before anything that is typed: that waits behind it.
local function feed_write_again()
  api.nvim_feedkeys(
    vim.keycode("<Cmd>lua require('sanderling.chat.keys').write_again()<CR>"),
    'ni',
    false
  )
end

---@param mode string
---@return string? command that begins it, if text is written in it
local function how_to_begin(mode)
  return mode:find('^i') and 'startinsert'
    or mode:find('^Rv') and 'startgreplace'
    or mode:find('^R') and 'startreplace'
    or nil
end

--- What is typed while Neovim draws is an interrupt if it is a `<C-c>`: no mapping sees it. Ours do.
---@param key string
---@param typed string empty if a mapping, or `feedkeys`, put the key there
---@return string? empty if it is done with
local function run_in_spite_of_drawing(key, typed)
  if key ~= INTERRUPT or typed ~= INTERRUPT then
    return
  end
  local mode = api.nvim_get_mode().mode
  if left and mode:find('^n') then -- which is interrupted as well, and what was fed is lost
    feed_write_again()
    return ''
  end
  local start = how_to_begin(mode)
  local kind = start and 'i' or mode:sub(1, 1):lower():gsub('\22', 'v')
  local mapping = vim.fn.maparg('<C-c>', kind, false, true)
  if mapping.buffer ~= 1 or not vim.startswith(mapping.desc or '', DESC) then
    return
  end
  vim.schedule(mapping.callback)
  if not start then
    return ''
  end
  -- These modes must have the key: as long as there is an interrupt they are asked for nothing else, without end.
  local buf, cursor = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)
  local mark = api.nvim_buf_set_extmark(buf, ns, cursor[1] - 1, cursor[2], {})
  left = { buf = buf, mark = mark, start = start }
  feed_write_again()
end

---@param transcript integer buffer
---@param prompt integer buffer
---@param actions sanderling.chat.keys.Actions
function M.set(transcript, prompt, actions)
  local keys = config.options.keys
  local function to_message(step)
    return function()
      actions.go_to_message(step)
    end
  end
  local function scroller(step)
    return function()
      actions.scroll(step)
    end
  end
  local function to_session(direction)
    return function()
      actions.switch(direction * vim.v.count1)
    end
  end

  vim.on_key(run_in_spite_of_drawing, ns)
  for _, buf in ipairs({ transcript, prompt }) do
    files.guard(buf, actions.go_to_file)
    map(buf, 'n', keys.next_session, to_session(1), 'next session')
    map(buf, 'n', keys.previous_session, to_session(-1), 'previous session')
    map(buf, 'n', keys.waiting, actions.queue, 'show the prompts that wait')
    map(buf, 'n', keys.approvals, approval.focus, 'go to the question')
  end

  map(transcript, 'n', keys.hide, actions.hide, 'hide the chat')
  map(transcript, { 'n', 'v' }, keys.stop, actions.stop_or_interrupt, 'stop the turn')
  map(transcript, 'n', keys.next_message, to_message(1), 'next message')
  map(transcript, 'n', keys.previous_message, to_message(-1), 'previous message')
  map(transcript, 'n', keys.write, actions.write, 'write a prompt')
  map(transcript, 'n', keys.open, actions.open, 'open the fold, or the file named here')
  map(transcript, 'n', keys.go_to_file, actions.go_to_file, 'open the file named here')
  map(transcript, 'n', keys.inspect, actions.inspect, 'show the use of a tool whole')

  map(prompt, 'n', keys.send_normal, actions.send, 'send the prompt')
  map(prompt, 'i', keys.send_insert, actions.send, 'send the prompt')
  map(prompt, { 'n', 'i' }, keys.steer, actions.steer, 'steer: send in the middle of the turn')
  for _, each in ipairs({
    { key = keys.mode, run = actions.cycle_mode, desc = 'next mode' },
    { key = keys.scroll_up, run = scroller(-1), desc = 'scroll the transcript up' },
    { key = keys.scroll_down, run = scroller(1), desc = 'scroll the transcript down' },
    { key = keys.go_to_end, run = actions.go_to_end, desc = 'to the end of the transcript' },
  }) do
    for _, lhs in ipairs(config.list_keys(each.key)) do
      map(prompt, { 'n', 'i' }, lhs, function()
        run_or_select(lhs, each.run)
      end, each.desc)
    end
  end
  map(prompt, 'n', keys.hide_prompt, actions.hide, 'hide the chat')
  map(prompt, { 'n', 'i', 'v' }, keys.stop, actions.stop_or_interrupt, 'stop the turn')
  map(prompt, { 'n', 'i' }, keys.history_previous, function()
    actions.recall(-1)
  end, 'older prompt')
  map(prompt, { 'n', 'i' }, keys.history_next, function()
    actions.recall(1)
  end, 'newer prompt')
end

---@class (exact) sanderling.chat.keys.Word
---@field word string
---@field desc string
---@field nargs 0|'?'|'*'|'+'
---@field complete? fun(lead: string, line: string, pos: integer): string[]
---@field run fun(cmd: vim.api.keyset.create_user_command.command_args, session: sanderling.chat.session.Session)

---@type sanderling.chat.keys.Word[]
local command_words = {}

--- Take the words that the command line knows in the chat's windows.
---@param list sanderling.chat.keys.Word[]
function M.register_words(list)
  command_words = list
end

--- Buffer-local commands, and the lower-case word for each as an abbreviation of a command line that is nothing else.
---@param session sanderling.chat.session.Session
function M.set_words(session)
  for _, buf in ipairs(session:buffers()) do
    for _, each in ipairs(command_words) do
      local word, desc = each.word, DESC .. each.desc
      local name = word:gsub('^%l', string.upper)
      api.nvim_buf_create_user_command(buf, name, function(cmd)
        local ok, err = pcall(each.run, cmd, session)
        if not ok then
          message.tell_error(cmd.name, err)
        end
      end, { desc = desc, nargs = each.nargs, complete = each.complete, bang = true })
      vim.keymap.set('ca', word, function()
        local is_whole = vim.fn.getcmdtype() == ':' and vim.fn.getcmdline() == word
        return is_whole and name or word
      end, { buffer = buf, expr = true, desc = desc })
    end
  end
end

return M
