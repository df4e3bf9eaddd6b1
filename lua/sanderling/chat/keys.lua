--- The keys of the chat's windows, and additional words of their command line. They are local to these buffers.
local api = vim.api
local files = require('sanderling.access.files')
local page = require('sanderling.access.page')
local message = require('sanderling.ui.message')

local M = {}

local DESC = 'Agent: '
local INTERRUPT = '\3'
local ns = api.nvim_create_namespace('sanderling_interrupt')

--- Where an interrupt ended insert mode, and the command that starts it again.
---@type { buf: integer, mark: integer, start: string }?
local left

--- Continue in insert mode where an interrupt ended it.
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

--- Feed the key that restarts insert mode. Typed keys wait until after it.
local function feed_write_again()
  api.nvim_feedkeys(
    vim.keycode("<Cmd>lua require('sanderling.chat.keys').write_again()<CR>"),
    'ni',
    false
  )
end

---@param mode string
---@return string? command that starts this mode, if it is one for typing text
local function how_to_begin(mode)
  return mode:find('^i') and 'startinsert'
    or mode:find('^Rv') and 'startgreplace'
    or mode:find('^R') and 'startreplace'
    or nil
end

--- Run our mapping of `<C-c>` also while Neovim is drawing. At that time `<C-c>` is an interrupt, which skips mappings.
---@param key string
---@param typed string empty if the key comes from a mapping or `feedkeys`
---@return string? empty to consume the key
local function run_in_spite_of_drawing(key, typed)
  if key ~= INTERRUPT or typed ~= INTERRUPT then
    return
  end
  local mode = api.nvim_get_mode().mode
  if left and mode:find('^n') then -- this is interrupted as well, and the fed key is lost
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
  -- These modes must receive the key: while an interrupt is pending Neovim asks them for nothing else, in an endless
  -- loop.
  local buf, cursor = api.nvim_get_current_buf(), api.nvim_win_get_cursor(0)
  local mark = api.nvim_buf_set_extmark(buf, ns, cursor[1] - 1, cursor[2], {})
  left = { buf = buf, mark = mark, start = start }
  feed_write_again()
end

---@param transcript integer buffer
---@param prompt? integer buffer
---@param actions table<string, fun(lhs?: string)> by key option
function M.set(transcript, prompt, actions)
  vim.on_key(run_in_spite_of_drawing, ns)
  for place, buf in pairs({ transcript = transcript, prompt = prompt }) do
    files.guard(buf, actions.go_to_file)
    page.set_keys(buf, place, actions)
  end
end

---@class (exact) sanderling.chat.keys.Word
---@field word string
---@field desc string
---@field nargs 0|'?'|'*'|'+'
---@field complete? fun(lead: string, line: string, pos: integer): string[]
---@field run fun(cmd: vim.api.keyset.create_user_command.command_args, session: sanderling.chat.session.Session)

---@type sanderling.chat.keys.Word[]
local command_words = {}

---@param list sanderling.chat.keys.Word[]
function M.register_words(list)
  command_words = list
end

--- Define buffer-local commands, and a lower-case abbreviation for each that expands if it is the whole command line.
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
