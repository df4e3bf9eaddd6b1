--- Buffers that are no files: made, named and set up so that nothing of the user's can get in the way.
---
--- An autocommand for BufNew or OptionSet that fails would end what is begun here, or ask for <Enter> with each frame that is
--- drawn. So these events stay out of it. FileType is what a user's configuration of the chat hangs on: it comes, and an error in
--- it is kept to itself.
local M = {}

local api = vim.api

---@type fun()?
local job

--- Do what `quietly` was called for. (Not for callers outside: it comes here by a command.)
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

--- Call `fn` without any autocommand: a command can be told so, without an option that has events of its own.
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

--- Set options of what `win` shows, for as long as it shows that.
---@param win integer
---@param options table<string, any>
function M.set_win_options(win, options)
  M.quietly(function()
    for name, value in pairs(options) do
      vim.wo[win][0][name] = value
    end
  end)
end

--- Tell everybody what `buf` is.
---@param buf integer
---@param filetype string
function M.set_filetype(buf, filetype)
  M.set_buf_options(buf, { filetype = filetype })
  run(function()
    -- Within the buffer: what is called by these options sets those of the current one, the syntax first of all.
    api.nvim_buf_call(buf, function()
      api.nvim_exec_autocmds('FileType', { buffer = buf, modeline = false })
    end)
  end, { emsg_silent = true })
end

--- Call `buf` what people read in a statusline or a tab: `[Sanderling prompt]`, `[Sanderling prompt 2]` where that is taken.
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

--- A new buffer without a file.
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

--- A copy of what stands in `buf`, and of our marks in it.
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

--- Put back into `buf` what stood in it, or in the one before it. The marks are called what they were.
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

--- Call `on_lost` with what stands in `buf` when it loses that: it is deleted, or `:edit` empties it. No text can be changed then.
---@param buf integer
---@param on_lost fun(copied: sanderling.ui.scratch.Copy)
function M.guard(buf, on_lost)
  api.nvim_buf_attach(buf, false, {
    on_detach = function() -- which comes with `:noautocmd`, too
      if vim.v.exiting == vim.NIL then
        on_lost(M.copy(buf))
      end
    end,
  })
end

return M
