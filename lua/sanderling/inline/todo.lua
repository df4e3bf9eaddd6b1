--- Comments for the model in the project's buffers: `AI!` at the end requests a change, `AI?` asks a question.
--- They are sent as one prompt, only when the user says so: the comments of a repository are other people's text.
local M = {}

local api = vim.api
local bus = require('sanderling.host.bus')
local chat = require('sanderling.chat')
local context = require('sanderling.prompt.context')
local edits = require('sanderling.inline.edits')
local live = require('sanderling.session.live')
local loading = require('sanderling.access.loading')
local message = require('sanderling.ui.message')
local names = require('sanderling.code.names')
local regions = require('sanderling.inline.region')
local stored = require('sanderling.session.stored')
local unseen = require('sanderling.ui.unseen')
local words = require('sanderling.ui.words')

local TYPED = api.nvim_create_namespace('sanderling_typed') -- see typed.lua
local AROUND = 10 -- lines sent before and after a comment
local MAX = 50 -- comments in a prompt
local MARKER = '()%f[%w]([Aa][Ii])([!?])()'
local CLOSING = '^%s*[%*%-%]#%%}|/>%)=]*%s*$' -- the end of a block comment: */ --> ]] #} *)

---@class (exact) sanderling.inline.todo.Comment
---@field buf integer
---@field first integer line
---@field last integer
---@field from_col integer bytes before it on its first line
---@field to_col integer bytes up to its end on its last line
---@field sign '!'|'?'

-- with a grammar ------------------------------------------------------------------------------------------------------

---@param node TSNode
---@param buf integer
---@return boolean Markdown has none but HTML's
local function is_comment(node, buf)
  local kind = node:type()
  return kind:find('comment') ~= nil
    or (kind == 'html_block' or kind == 'html_tag')
      and vim.startswith(vim.treesitter.get_node_text(node, buf), '<!--')
end

--- Return the range of the comment at a position, in the file's language or one that is embedded there.
---@param parser vim.treesitter.LanguageTree
---@param row integer
---@param col integer
---@return [integer, integer, integer, integer]?
local function comment_at(parser, row, col)
  local found ---@type TSNode?
  parser:for_each_tree(function(tree, ltree)
    local here = { row, col, row, col + 1 }
    if ltree:lang() == 'comment' or not ltree:contains(here) then -- a grammar for the text of comments
      return
    end
    local node = tree:root():named_descendant_for_range(unpack(here))
    while node do
      found = is_comment(node, parser:source() --[[@as integer]]) and node or found
      node = node:parent()
    end
  end)
  return found and { found:range() } or nil
end

--- Return the first row of the lines of comment that end with the one on `row`.
---@param parser vim.treesitter.LanguageTree
---@param buf integer
---@param row integer
---@param col integer where that comment begins
---@return integer
local function first_row(parser, buf, row, col)
  while row > 0 do
    local line = api.nvim_buf_get_lines(buf, row - 1, row, true)[1]
    local above = #line:match('^%s*') == col and comment_at(parser, row - 1, col)
    local is_alone = above and above[1] == row - 1 and above[2] == col
    if not is_alone or line:find('%f[%w][Aa][Ii][!?]%s*$') then
      break
    end
    row = row - 1
  end
  return row
end

---@param parser vim.treesitter.LanguageTree
---@param buf integer
---@param row integer of a marker
---@param col integer
---@param behind integer
---@return integer? first row
---@return integer? last
---@return integer? from_col
---@return integer? to_col
local function by_grammar(parser, buf, row, col, behind)
  local range = comment_at(parser, row, col)
  if not range then
    return nil
  end
  local from_row, from_col, to_row, to_col = unpack(range)
  if to_col == 0 and to_row > row then -- it ends in a newline
    to_row = to_row - 1
    to_col = #api.nvim_buf_get_lines(buf, to_row, to_row + 1, true)[1]
  end
  local rest = table.concat(api.nvim_buf_get_text(buf, row, behind, to_row, to_col, {}), '\n')
  if not rest:find(CLOSING) then
    return nil
  end
  local before = api.nvim_buf_get_text(buf, from_row, 0, from_row, from_col, {})[1]
  local is_alone = from_row == to_row and not before:find('%S')
  local first = is_alone and first_row(parser, buf, from_row, from_col) or from_row
  return first, to_row, from_col, to_col
end

-- without one ---------------------------------------------------------------------------------------------------------

---@param line string
---@param behind integer byte after the text in question
---@return boolean an open quote precedes it
local function is_quoted(line, behind)
  local open ---@type string?
  local text = line:sub(1, behind):gsub('\\.', '')
  for quote in text:gmatch('["\'`]') do
    if not open then
      open = quote
    elseif open == quote then
      open = nil
    end
  end
  return open ~= nil
end

--- What a comment begins and ends with; `right` is empty if that is the end of the line.
---@class (exact) sanderling.inline.todo.Signs
---@field left string
---@field right string

--- Return how comments of the file type are written. 'commentstring' is one way, 'comments' has all if it is set for the
--- file type; its default fits none.
---@param buf integer
---@return sanderling.inline.todo.Signs[]
local function comment_signs(buf)
  local left, right = vim.bo[buf].commentstring:match('^(.-)%%s(.*)$')
  if words.trimmed(left or '') == '' then
    return {}
  end
  local all = { { left = words.trimmed(left), right = words.trimmed(right) } }
  local parts = vim.bo[buf].comments ~= vim.go.comments and vim.bo[buf].comments or ''
  local begun ---@type string?
  for flags, sign in parts:gsub('\\,', '\1'):gmatch('([^:,]*):([^,]*)') do
    sign = words.trimmed((sign:gsub('\\', ''):gsub('\1', ',')))
    if flags:find('[sme]') then -- the three parts of a block
      if flags:find('e') and begun and begun ~= '' and sign ~= '' then
        all[#all + 1] = { left = begun, right = sign }
      end
      begun = flags:find('s') and not flags:find('O') and sign or flags:find('m') and begun or nil
    elseif sign ~= '' and not flags:find('[fn]') then -- no list, no quotation
      all[#all + 1] = { left = sign, right = '' }
    end
  end
  return all
end

--- Does the syntax file, if it is in use, say that this is no comment? It knows strings over several lines.
---@param buf integer
---@param lnum integer
---@param col integer from 1
---@return boolean
local function is_denied_by_syntax(buf, lnum, col)
  if not vim.g.syntax_on or vim.bo[buf].syntax == '' or not vim.b[buf].current_syntax then
    return false
  end
  return api.nvim_buf_call(buf, function()
    return not vim.iter(vim.fn.synstack(lnum, col)):any(function(id)
      local name = vim.fn.synIDattr(id, 'name') .. vim.fn.synIDattr(vim.fn.synIDtrans(id), 'name')
      return name:find('[Cc]omment') ~= nil
    end)
  end)
end

---@param line string
---@param left string
---@param most integer byte
---@return integer? at where a comment begins on the line, before `most`
local function beginning(line, left, most)
  local from = 1
  while true do
    local at = line:find(left, from, true)
    if not at or at > most then
      return nil
    elseif not is_quoted(line, at - 1) then
      return at
    end
    from = at + 1
  end
end

--- Return the line where a comment ends that continues behind its marker.
---@param lines string[]
---@param lnum integer of the marker
---@param behind integer
---@param right string
---@return integer? last
---@return integer? to_col
local function ending(lines, lnum, behind, right)
  local rest = words.trimmed(lines[lnum]:sub(behind))
  if rest == right or right ~= '' and vim.startswith(rest, right) then
    local _, to_col = lines[lnum]:find(right, behind, true)
    return lnum, right == '' and #lines[lnum] or to_col
  elseif rest == '' and right ~= '' and words.trimmed(lines[lnum + 1] or '') == right then
    return lnum + 1, #lines[lnum + 1]
  end
end

---@param lines string[]
---@param lnum integer
---@param at integer where the marker begins
---@param behind integer
---@param signs sanderling.inline.todo.Signs
---@return integer? first row
---@return integer? last
---@return integer? from_col
---@return integer? to_col
local function by_signs(lines, lnum, at, behind, signs)
  local left, right = signs.left, signs.right
  local last, to_col = ending(lines, lnum, behind, right)
  if not last then
    return nil
  end
  local start = beginning(lines[lnum], left, at)
  if start then
    local first = lnum
    local is_alone = vim.startswith(words.trimmed(lines[lnum]), left)
    while is_alone and right == '' and first > 1 do
      local above = words.trimmed(lines[first - 1])
      if not vim.startswith(above, left) or above:find('%f[%w][Aa][Ii][!?]$') then
        break
      end
      first = first - 1
    end
    return first - 1, last - 1, start - 1, to_col
  end
  for above = lnum - 1, right ~= '' and math.max(1, lnum - 100) or lnum, -1 do
    if lines[above]:find(right, 1, true) then
      return nil
    end
    start = beginning(lines[above], left, #lines[above])
    if start then
      return above - 1, last - 1, start - 1, to_col
    end
  end
end

-- collecting ----------------------------------------------------------------------------------------------------------

--- Return the comments for the model in a buffer.
---@param buf integer
---@return sanderling.inline.todo.Comment[]
function M.of(buf)
  local lines = api.nvim_buf_get_lines(buf, 0, -1, false)
  local parser, is_parsed ---@type vim.treesitter.LanguageTree?, boolean?
  local signs = comment_signs(buf)
  local found = {} ---@type sanderling.inline.todo.Comment[]
  for lnum, line in ipairs(lines) do
    for at, _, sign, behind in line:gmatch(MARKER) do
      if is_parsed == nil then
        parser = names.parser_of(buf)
        is_parsed = parser ~= nil and pcall(parser.parse, parser, true)
      end
      local first, last, from_col, to_col ---@type integer?, integer?, integer?, integer?
      if is_parsed then
        first, last, from_col, to_col =
          by_grammar(assert(parser), buf, lnum - 1, at - 1, behind - 1)
      elseif not is_denied_by_syntax(buf, lnum, at) then
        for _, each in ipairs(signs) do
          if not first then
            first, last, from_col, to_col = by_signs(lines, lnum, at, behind, each)
          end
        end
      end
      if first then
        found[#found + 1] = {
          buf = buf,
          first = first + 1,
          last = assert(last) + 1,
          from_col = assert(from_col),
          to_col = assert(to_col),
          sign = sign,
        }
      end
    end
  end
  return found
end

--- Return the buffers of the project's files that the user has opened.
---@param project string
---@return integer[]
local function buffers_of(project)
  return vim.tbl_filter(function(buf)
    local name = api.nvim_buf_get_name(buf)
    return api.nvim_buf_is_loaded(buf)
      and vim.bo[buf].buflisted
      and vim.bo[buf].buftype == ''
      and not loading.is_quiet(buf)
      and name ~= ''
      and vim.fs.relpath(project, name) ~= nil
  end, api.nvim_list_bufs())
end

---@param comment sanderling.inline.todo.Comment
---@return string
local function text_of(comment)
  local lines = api.nvim_buf_get_lines(comment.buf, comment.first - 1, comment.last, false)
  return table.concat(lines, '\n')
end

---@param bufs integer[]
---@return sanderling.inline.todo.Comment[]
---@return integer hidden how many were left out because the user cannot see all of their text
local function collect(bufs)
  local found, hidden = {}, 0
  for _, buf in ipairs(bufs) do
    for _, comment in ipairs(M.of(buf)) do
      if unseen.count(text_of(comment)) > 0 then
        hidden = hidden + 1
      else
        found[#found + 1] = comment
      end
    end
  end
  return found, hidden
end

-- sending -------------------------------------------------------------------------------------------------------------

local WANTED = {
  ['!'] = 'do it, and delete the comment in the same edit',
  ['?'] = 'answer it here, and change nothing for it',
}

--- Return the line of the prompt about a comment. Its text is in the attachment only: it could contain mentions.
---@param comment sanderling.inline.todo.Comment
---@param number integer of the attachment
---@param project string
---@return string
local function line_of(comment, number, project)
  local path = context.path_of(comment.buf, project)
  local is_plain = not path:find('[@`]') and words.plain(path) == path
  local place = not is_plain and ('attachment %d, line %d'):format(number, comment.first)
    or ('`%s:%d`'):format(path, comment.first)
  local span = comment.last > comment.first and (' to line %d'):format(comment.last) or ''
  return ('* %s%s, which ends in AI%s: %s.'):format(place, span, comment.sign, WANTED[comment.sign])
end

--- Lines that are attached, with the comments in them.
---@class (exact) sanderling.inline.todo.Part
---@field buf integer
---@field first integer line
---@field last integer
---@field comments sanderling.inline.todo.Comment[]

--- Return the lines around comments; where they meet, as one part.
---@param comments sanderling.inline.todo.Comment[]
---@return sanderling.inline.todo.Part[]
local function parts_of(comments)
  local parts = {} ---@type sanderling.inline.todo.Part[]
  for _, comment in ipairs(comments) do
    local first, last = math.max(1, comment.first - AROUND), comment.last + AROUND
    local part = parts[#parts]
    if part and part.buf == comment.buf and first <= part.last + 1 then
      part.last = math.max(part.last, last)
    else
      part = { buf = comment.buf, first = first, last = last, comments = {} }
      parts[#parts + 1] = part
    end
    table.insert(part.comments, comment)
  end
  return parts
end

---@param comments sanderling.inline.todo.Comment[]
---@param project string
---@return string[]? lines
---@return sanderling.Selection[]|string selections or error
local function prompt_of(comments, project)
  local lines = { 'Handle these comments that I left in the code:', '' }
  local selections = {}
  for number, part in ipairs(parts_of(comments)) do
    local selection, err = context.selection(part.buf, part.first, part.last, project)
    if not selection then
      return nil, assert(err)
    end
    selections[number] = selection
    for _, comment in ipairs(part.comments) do
      lines[#lines + 1] = line_of(comment, number, project)
    end
  end
  return lines, selections
end

---@class (exact) sanderling.inline.todo.Leaving
---@field session_id string
---@field comments sanderling.inline.todo.Sent[]

---@type table<string, sanderling.inline.todo.Leaving> comments whose turn has not begun, by prompt
local leaving = {}

--- Forget the comments of prompts that the user has taken back.
local function forget_withdrawn()
  for prompt, each in pairs(leaving) do
    local session = live.find(each.session_id)
    if not session or not session:is_waiting(prompt) then
      leaving[prompt] = nil
    end
  end
end

--- Send comments to the model, in the chat.
---@param comments sanderling.inline.todo.Comment[]
---@param project string
---@return boolean is_sent false: the user is shown why not, and the comments can be sent again
local function send(comments, project)
  forget_withdrawn()
  if #comments > MAX then
    local text = '%d comments are too many for one prompt (at most %d); nothing was sent.'
    message.tell(text:format(#comments, MAX), vim.log.levels.WARN)
    return false
  end
  local lines, selections = prompt_of(comments, project)
  if not lines then
    message.tell(selections --[[@as string]], vim.log.levels.ERROR)
    return false
  end
  local session, prompt = chat.current_session(), table.concat(lines, '\n')
  local opts = {
    selections = selections --[[@as sanderling.Selection[] ]],
  }
  chat.show({ focus = false })
  if not session:send(lines, opts) or not session:is_waiting(prompt) then
    return false
  end
  local sent = vim.tbl_map(function(comment)
    api.nvim_buf_clear_namespace(comment.buf, TYPED, comment.first - 1, comment.last)
    return {
      buf = comment.buf,
      text = text_of(comment),
      sign = comment.sign,
      tick = api.nvim_buf_get_changedtick(comment.buf),
    }
  end, comments)
  leaving[prompt] = { session_id = session.id, comments = sent }
  return true
end

---@return string
local function project_here()
  local current = live.current()
  return current and current.project or stored.root_here()
end

--- Return the comments whose removal does not wait as an edit, which the model has done.
---@param comments sanderling.inline.todo.Comment[]
---@return sanderling.inline.todo.Comment[]
local function undone(comments)
  return vim.tbl_filter(function(comment)
    return not edits.is_any_at(comment.buf, comment.first, comment.last)
  end, comments)
end

--- Send the comments in the project's buffers.
function M.send()
  local project = project_here()
  local all, hidden = collect(buffers_of(project))
  local comments = undone(all)
  if #all > 0 and #comments == 0 then
    local text = 'First accept or reject the edits below the comments.'
    return message.tell(text, vim.log.levels.WARN)
  end
  local left_out = hidden > 0
      and ('%s with invisible characters left out. '):format(words.counted(hidden, 'comment'))
    or ''
  if #comments == 0 then
    local text = left_out .. 'No comment in the open files of this project ends in AI! or AI?.'
    message.tell(text, vim.log.levels.WARN)
  elseif send(comments, project) then
    message.tell(left_out .. words.counted(#comments, 'comment') .. ' sent.')
  end
end

--- Send the comments of one buffer that `is_meant`, if it is one of the project's.
---@param buf integer
---@param is_meant fun(comment: sanderling.inline.todo.Comment): boolean
function M.send_some(buf, is_meant)
  local project = project_here()
  if not vim.list_contains(buffers_of(project), buf) then
    return
  end
  local comments = undone(vim.tbl_filter(is_meant, (collect({ buf }))))
  if #comments > 0 and send(comments, project) then
    message.tell(words.counted(#comments, 'comment') .. ' sent.')
  end
end

-- after the turn ------------------------------------------------------------------------------------------------------

--- A comment that was sent.
---@class (exact) sanderling.inline.todo.Sent
---@field buf integer
---@field text string its lines
---@field sign '!'|'?'
---@field tick integer of the buffer then

--- Return the lines of a comment without it, empty if they are nothing else.
---@param comment sanderling.inline.todo.Comment
---@return string
local function without(comment)
  local lines = vim.split(text_of(comment), '\n', { plain = true })
  local before = lines[1]:sub(1, comment.from_col)
  local behind = words.trimmed(lines[#lines]:sub(comment.to_col + 1))
  if behind ~= '' then
    return before .. behind
  end
  return before:find('%S') and (before:gsub('%s+$', '')) or ''
end

--- Return the comments that are still in the code, although the model has changed their file.
---@param before sanderling.inline.todo.Sent[]
---@return sanderling.inline.todo.Comment[]
local function left(before)
  local texts, bufs = {}, {} ---@type table<string, true>, table<integer, true>
  for _, each in ipairs(before) do
    local is_changed = each.sign == '!'
      and api.nvim_buf_is_loaded(each.buf)
      and api.nvim_buf_get_changedtick(each.buf) ~= each.tick
    if is_changed then
      texts[each.buf .. ' ' .. each.text], bufs[each.buf] = true, true
    end
  end
  return vim.tbl_filter(function(comment)
    return texts[comment.buf .. ' ' .. text_of(comment)] ~= nil
  end, (collect(vim.tbl_keys(bufs))))
end

---@type table<string, sanderling.inline.todo.Sent[]> comments of the running prompt, by session
local running = {}

bus.subscribe('turn_started', function(session_id, event)
  local prompt = words.trimmed(event.prompt.text)
  local begun = leaving[prompt]
  running[session_id], leaving[prompt] = begun and begun.comments, nil
end)

-- The model was asked to delete each comment that it has done. If it forgets one, the next `:AgentTodo!` would send it again.
bus.subscribe('turn_ended', function(session_id, event)
  local before = running[session_id]
  running[session_id] = nil
  if not before or event.stop_reason ~= 'end_turn' then
    return
  end
  local comments = left(before)
  for _, comment in ipairs(comments) do
    edits.offer(
      regions.lines(comment.buf, comment.first, comment.last),
      without(comment),
      'Remove the comment'
    )
  end
  if #comments > 0 then
    local text = '%s left in changed files: accept the edit below each to remove it.'
    message.tell(text:format(words.counted(#comments, 'AI! comment')), vim.log.levels.WARN)
  end
end)

return M
