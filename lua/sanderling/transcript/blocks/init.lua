--- The kinds of blocks in a transcript. Each kind registers which events it draws, which fields it keeps, and which of
--- these hold rows, because rows shift when a page of history is inserted or an answer is removed.
local M = {}

---@alias sanderling.transcript.blocks.Draw fun(self: sanderling.transcript.Transcript, event: any)

---@class (exact) sanderling.transcript.blocks.Rows
---@field of string[] fields with rows, of the table or of each list item; empty: the items are rows
---@field is_list? boolean the field is a list, or a table by id
---@field is_of_page? boolean the items of an inserted page are prepended

---@class (exact) sanderling.transcript.blocks.Kind
---@field draw? table<string, sanderling.transcript.blocks.Draw> by event type
---@field beside? string[] types of events that do not come from the model and may occur in the middle of its answer
---@field new? fun(): table<string, any> creates the kind's fields of a transcript
---@field rows? table<string, sanderling.transcript.blocks.Rows> by field name

---@type table<string, sanderling.transcript.blocks.Draw> by event type
M.draw = {}
---@type table<string, true> by event type
M.is_beside = {}
---@type (fun(): table<string, any>)[]
local makers = {}
---@type table<string, sanderling.transcript.blocks.Rows> by field name
local rows = {}

---@param kind sanderling.transcript.blocks.Kind
function M.register(kind)
  M.draw = vim.tbl_extend('error', M.draw, kind.draw or {})
  rows = vim.tbl_extend('error', rows, kind.rows or {})
  makers[#makers + 1] = kind.new
  for _, type in ipairs(kind.beside or {}) do
    M.is_beside[type] = true
  end
end

--- Draw `event` if a kind handles it. If new text follows the last turn, move the turn's duration and cost from the
--- footer to its header.
---@param transcript sanderling.transcript.Transcript
---@param event table
function M.draw_event(transcript, event)
  local draw, last = M.draw[event.type], transcript.last
  if draw then
    draw(transcript, event)
  end
  if transcript.took and transcript.last > last then
    M.draw.local_turn_left(transcript, event)
  end
end

--- Return the fields of an empty transcript.
---@return table<string, any>
function M.new_fields()
  local fields = {}
  for _, new in ipairs(makers) do
    fields = vim.tbl_extend('error', fields, new())
  end
  return fields
end

---@param item table
---@param fields any[] with rows
---@param from integer
---@param delta integer
local function shift_fields(item, fields, from, delta)
  for _, field in ipairs(fields) do
    if item[field] and item[field] >= from then
      item[field] = item[field] + delta
    end
  end
end

--- Shift rows after rows were inserted before row `from`, or `-delta` rows directly before it were removed.
---@param transcript sanderling.transcript.Transcript
---@param from integer
---@param delta integer
function M.shift(transcript, from, delta)
  for name, each in pairs(rows) do
    local value = transcript[name]
    if each.is_list and #each.of > 0 then
      for _, item in pairs(value) do
        shift_fields(item, each.of, from, delta)
      end
    elseif each.is_list then
      shift_fields(value, vim.tbl_keys(value), from, delta)
    elseif #each.of > 0 then
      shift_fields(value or {}, each.of, from, delta)
    else
      shift_fields(transcript, { name }, from, delta)
    end
  end
  transcript.markdown:shift(from, delta)
end

--- Prepend the items of `page` to those of `transcript`. The rows of both are already correct.
---@param transcript sanderling.transcript.Transcript
---@param page sanderling.transcript.Transcript
function M.prepend(transcript, page)
  for name, each in pairs(rows) do
    if each.is_of_page then
      transcript[name] = vim.list_extend(page[name], transcript[name])
    end
  end
  transcript.markdown:prepend(page.markdown)
end

return M
