--- Unified diffs: highlighting, and the file line of each diff line.
local M = {}

local api = vim.api
require('sanderling.ui.colors')

local ns = require('sanderling.transcript.writer').NS

--- Call `see` for each line of a unified diff. A hunk's end is computed from its line counts, so that its lines cannot
--- be taken for the next file's header.
---@param lines string[]
---@param see fun(i: integer, hl: string?, path: string?, lnum: integer?) with the line's highlight and its place in the file
function M.walk(lines, see)
  local old_left, new_left = 0, 0
  ---@type string?, integer?
  local path, lnum
  for i, line in ipairs(lines) do
    local sign = line:sub(1, 1)
    if old_left > 0 or new_left > 0 then
      local is_added, is_deleted = sign == '+', sign == '-'
      local is_note = sign == '\\'
      see(i, is_added and 'AgentDiffAdd' or is_deleted and 'AgentDiffDelete' or nil, path, lnum)
      if not is_added and not is_note then
        old_left = old_left - 1
      end
      if not is_deleted and not is_note then
        new_left, lnum = new_left - 1, lnum + 1
      end
    else
      local old, first, new = line:match('^@@ %-%d+,?(%d*) %+(%d+),?(%d*) @@')
      if first then
        old_left, new_left = tonumber(old) or 1, tonumber(new) or 1
        lnum = tonumber(first)
      else
        lnum = nil
        path = line:match('^%+%+%+ ([^\t]+)') or path
      end
      see(i, first and 'AgentDiffHunk' or line ~= '' and 'AgentDiffHeader' or nil, path, lnum)
    end
  end
end

---@param buf integer
---@param row integer of its first line
---@param lines string[]
function M.paint(buf, row, lines)
  local run_hl, run_first ---@type string?, integer?
  local function finish(behind)
    if run_hl then
      api.nvim_buf_set_extmark(buf, ns, row + run_first - 1, 0, {
        end_row = row + behind - 1,
        end_col = 0,
        hl_group = run_hl,
        hl_eol = true,
        strict = false,
      })
    end
  end
  M.walk(lines, function(i, hl)
    if hl ~= run_hl then
      finish(i)
      run_hl, run_first = hl, i
    end
  end)
  finish(#lines + 1)
end

--- Highlight lines of a scratch buffer as `filetype`, without triggering the user's autocommands.
---@param buf integer
---@param filetype string
---@param first_lnum integer
---@param last_lnum? integer default: the last line of the buffer
function M.set_syntax(buf, filetype, first_lnum, last_lnum)
  api.nvim_buf_call(buf, function()
    vim.cmd('syntax clear')
  end)
  if filetype == 'diff' then
    local lines = api.nvim_buf_get_lines(buf, first_lnum - 1, last_lnum or -1, true)
    M.paint(buf, first_lnum - 1, lines)
  elseif filetype:find('^%w+$') then
    local behind = last_lnum and ([[\%%%dl]]):format(last_lnum + 1) or [[\%$]]
    local region = [[syntax region AgentText start=/\%%%dl/ end=/%s/ contains=@AgentText keepend]]
    api.nvim_buf_call(buf, function()
      local include = ('syntax include @AgentText syntax/%s.vim'):format(filetype)
      if pcall(vim.cmd, include) then -- otherwise there is no such syntax
        vim.cmd(region:format(first_lnum, behind))
      end
    end)
  end
end

return M
