--- Buffers without a file: created, named and set up so that the user's autocommands cannot interfere.
---
--- An autocommand for BufNew or OptionSet that fails would abort the operation, or ask for <Enter> with each redraw, so
--- these events are suppressed. Users configure the chat by FileType, so it is fired, and errors in it are silent.
local M = {}

local api = vim.api

---@type fun()?
local job

--- Call the function passed to `quietly`, from a command.
function M.run_job()
  job()
end

---@param fn fun()
---@param mods vim.api.keyset.cmd.mods
local function run(fn, mods)
  local outer = job
  job = fn
  local command =
    { cmd = 'lua', args = { "package.loaded['sanderling.ui.scratch'].run_job()" }, mods = mods }
  local ok, err = pcall(api.nvim_cmd, command, {})
  job = outer
  if not ok then
    error(err, 0)
  end
end

--- Call `fn` without autocommands. The modifier `:noautocmd` fires no event itself; setting an option such as
--- 'eventignore' does.
---@param fn fun()
function M.quietly(fn)
  run(fn, { noautocmd = true })
end

---@param buf integer
---@param options table<string, any>
function M.set_buf_options(buf, options)
  M.quietly(function()
    for name, value in pairs(options) do
      vim.bo[buf][name] = value
    end
  end)
end

--- Set options of `win` for as long as it shows its buffer.
---@param win integer
---@param options table<string, any>
function M.set_win_options(win, options)
  M.quietly(function()
    for name, value in pairs(options) do
      vim.wo[win][0][name] = value
    end
  end)
end

--- Fire an event for `buf`. Errors in its autocommands are silent.
---@param buf integer
---@param event string
function M.fire(buf, event)
  run(function()
    -- With `buf` current: syntax files and filetype plugins set options of the current buffer.
    api.nvim_buf_call(buf, function()
      api.nvim_exec_autocmds(event, { buffer = buf, modeline = false })
    end)
  end, { emsg_silent = true })
end

--- Set 'filetype' and fire FileType.
---@param buf integer
---@param filetype string
function M.set_filetype(buf, filetype)
  M.set_buf_options(buf, { filetype = filetype })
  M.fire(buf, 'FileType')
end

--- Name `buf` for statuslines and tabs: `[Sanderling prompt]`, or `[Sanderling prompt 2]` if that is taken.
---@param buf integer
---@param what string empty: the chat itself
local function set_name(buf, what)
  local stem = vim.trim('Sanderling ' .. what)
  local name, number = ('[%s]'):format(stem), 1
  while vim.fn.bufexists(name) == 1 do
    number = number + 1
    name = ('[%s %d]'):format(stem, number)
  end
  M.quietly(function()
    api.nvim_buf_set_name(buf, name)
  end)
end

--- Create a buffer without a file.
---@param what string for its name
---@return integer buf
function M.new(what)
  local buf ---@type integer
  M.quietly(function()
    buf = api.nvim_create_buf(false, true)
  end)
  set_name(buf, what)
  return buf
end

-- text that outlives its buffer ---------------------------------------------------------------------------------------

---@class (exact) sanderling.ui.scratch.Copy
---@field lines string[]
---@field marks [integer, vim.api.keyset.get_extmark_item][] namespace and mark

--- Return the lines of `buf` and our marks in it.
---@param buf integer
---@return sanderling.ui.scratch.Copy
function M.copy(buf)
  local marks = {}
  for name, ns in pairs(api.nvim_get_namespaces()) do
    local are_ours = vim.startswith(name, 'sanderling')
    for _, mark in
      ipairs(are_ours and api.nvim_buf_get_extmarks(buf, ns, 0, -1, { details = true }) or {})
    do
      marks[#marks + 1] = { ns, mark }
    end
  end
  return { lines = api.nvim_buf_get_lines(buf, 0, -1, false), marks = marks }
end

--- Put copied lines and marks into `buf`. The marks keep their ids.
---@param copied sanderling.ui.scratch.Copy
---@param buf integer
function M.paste(copied, buf)
  M.quietly(function()
    local is_modifiable = vim.bo[buf].modifiable
    vim.bo[buf].modifiable = true
    api.nvim_buf_clear_namespace(buf, -1, 0, -1)
    api.nvim_buf_set_lines(buf, 0, -1, false, copied.lines)
    vim.bo[buf].modifiable = is_modifiable
  end)
  for _, each in ipairs(copied.marks) do
    local ns, mark = unpack(each)
    local id, row, col, details = unpack(mark)
    details.ns_id, details.id = nil, id
    api.nvim_buf_set_extmark(buf, ns, row, col, details)
  end
end

--- Call `on_lost` with the text of `buf` when it is deleted, or emptied by `:edit`. Text cannot be changed at that
--- moment.
---@param buf integer
---@param on_lost fun(copied: sanderling.ui.scratch.Copy)
function M.guard(buf, on_lost)
  api.nvim_buf_attach(buf, false, {
    on_detach = function() -- also with `:noautocmd`
      if vim.v.exiting == vim.NIL then
        on_lost(M.copy(buf))
      end
    end,
  })
end

return M
