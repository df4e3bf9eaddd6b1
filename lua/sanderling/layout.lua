--- The two windows of a chat: where they open, and what is set in them.
local M = {}

local api = vim.api

---@class (exact) sanderling.layout.Windows
---@field transcript integer
---@field prompt integer
---@field replaced? integer the buffer that the transcript's window showed before

---@class (exact) sanderling.layout.Options
---@field position string
---@field size number
---@field prompt_height integer

---@param size number
---@param whole integer
---@return integer
local function cells(size, whole)
  local wanted = size < 1 and math.floor(size * whole) or math.floor(size)
  return math.max(10, math.min(wanted, whole - 4))
end

local side_splits = { right = 'botright vsplit', left = 'topleft vsplit' }
local row_splits = { bottom = 'botright split', top = 'topleft split' }

---@param opts sanderling.layout.Options
---@param transcript_buf integer
---@return integer win
local function open_transcript(opts, transcript_buf)
  local position = opts.position
  if position == 'float' then
    local width = cells(opts.size < 1 and math.max(opts.size, 0.6) or opts.size, vim.o.columns)
    local height = math.max(5, vim.o.lines - 8)
    return api.nvim_open_win(transcript_buf, true, {
      relative = 'editor',
      width = width,
      height = math.max(3, height - opts.prompt_height - 2),
      row = 1,
      col = math.floor((vim.o.columns - width) / 2),
      border = 'rounded',
      title = ' Sanderling ',
    })
  elseif side_splits[position] then
    vim.cmd(side_splits[position])
    vim.cmd('vertical resize ' .. cells(opts.size, vim.o.columns))
  elseif row_splits[position] then
    vim.cmd(row_splits[position])
    vim.cmd('resize ' .. cells(opts.size, vim.o.lines))
  elseif position == 'tab' then
    vim.cmd('tab split')
  end
  vim.wo.winfixbuf = false
  api.nvim_win_set_buf(0, transcript_buf)
  return api.nvim_get_current_win()
end

---@param opts sanderling.layout.Options
---@param transcript_win integer
---@param prompt_buf integer
---@return integer win
local function open_prompt(opts, transcript_win, prompt_buf)
  if opts.position == 'float' then
    local above = api.nvim_win_get_config(transcript_win)
    return api.nvim_open_win(prompt_buf, true, {
      relative = 'editor',
      width = above.width,
      height = opts.prompt_height,
      row = above.row + above.height + 2,
      col = above.col,
      border = 'rounded',
    })
  end
  local room = api.nvim_win_get_height(transcript_win) - 2
  return api.nvim_open_win(prompt_buf, true, {
    win = transcript_win,
    split = 'below',
    height = math.max(1, math.min(opts.prompt_height, room)),
  })
end

---@param win integer
---@param options table<string, any>
local function set_options(win, options)
  for name, value in pairs(options) do
    vim.wo[win][0][name] = value
  end
end

local shared_options = {
  wrap = true,
  linebreak = true,
  breakindent = true,
  number = false,
  relativenumber = false,
  signcolumn = 'no',
  foldcolumn = '0',
  statuscolumn = '',
  colorcolumn = '',
  cursorcolumn = false,
  list = false,
}

--- What a window that shows a transcript needs, the chat's own or any other.
---@param win integer
function M.set_transcript_options(win)
  set_options(win, shared_options)
  set_options(win, {
    cursorline = false,
    spell = false,
    smoothscroll = true,
    foldenable = true,
    foldmethod = 'manual',
    foldtext = "v:lua.require'sanderling.render'.foldtext()",
    fillchars = 'fold: ,eob: ',
    winbar = "%{%v:lua.require'sanderling.status'.transcript_winbar()%}",
  })
end

--- A file that is opened from one of these windows belongs into another one.
---@param wins integer[]
local function keep_buffers(wins)
  if vim.v.vim_did_enter == 0 then
    -- Plugins that go through all windows at startup (netrw does) would split one that is fixed: |:windo| does so.
    api.nvim_create_autocmd('VimEnter', {
      once = true,
      desc = "Agent: keep the chat's buffers in its windows",
      callback = function()
        keep_buffers(wins)
      end,
    })
    return
  end
  for _, win in ipairs(wins) do
    if api.nvim_win_is_valid(win) then
      vim.wo[win].winfixbuf = true
    end
  end
end

--- Open both windows in this tab page and leave the cursor in the prompt.
---@param opts sanderling.layout.Options
---@param transcript_buf integer
---@param prompt_buf integer
---@return sanderling.layout.Windows
function M.open(opts, transcript_buf, prompt_buf)
  local replaced = opts.position == 'current' and api.nvim_get_current_buf() or nil
  local transcript = open_transcript(opts, transcript_buf)
  M.set_transcript_options(transcript)
  local ok, prompt = pcall(open_prompt, opts, transcript, prompt_buf)
  if not ok then
    M.close({ transcript }, replaced)
    error('sanderling: there is no room for the chat here: ' .. tostring(prompt), 0)
  end
  set_options(prompt, shared_options)
  set_options(prompt, {
    winbar = "%{%v:lua.require'sanderling.status'.prompt_winbar()%}",
    winfixheight = true,
    fillchars = 'eob: ',
  })
  if opts.position ~= 'current' then
    keep_buffers({ transcript, prompt })
  end
  if side_splits[opts.position] then
    vim.wo[transcript].winfixwidth = true
    vim.wo[prompt].winfixwidth = true
  end
  return { transcript = transcript, prompt = prompt, replaced = replaced }
end

---@param win integer
---@param buf integer
local function show_instead(win, buf)
  vim.wo[win].winfixbuf = false
  api.nvim_win_set_buf(win, buf)
end

--- Does `tab` show the chat's windows, both of them?
---@param windows sanderling.layout.Windows
---@param tab integer
---@return boolean
function M.is_shown(windows, tab)
  local shown = api.nvim_tabpage_list_wins(tab)
  return vim.list_contains(shown, windows.transcript) and vim.list_contains(shown, windows.prompt)
end

--- Close `wins`. The last of them shows `replaced` again if there is such a buffer; the last window of Neovim, which cannot be
--- closed, gets an empty one.
---@param wins integer[]
---@param replaced? integer
function M.close(wins, replaced)
  for i, win in ipairs(wins) do
    if api.nvim_win_is_valid(win) then
      if i == #wins and replaced and api.nvim_buf_is_valid(replaced) then
        show_instead(win, replaced)
      elseif not pcall(api.nvim_win_close, win, true) then
        show_instead(win, api.nvim_create_buf(true, false))
      end
    end
  end
end

return M
