--- The kinds of blocks in a transcript. Each registers what it draws of which events, what it remembers of them, and where in that
--- rows stand: rows above may come or go, with pages of the history and with an answer that is taken back.
local M = {}

---@alias sanderling.transcript.blocks.Draw fun(self: sanderling.transcript.Transcript, event: any)

---@class (exact) sanderling.transcript.blocks.Rows
---@field of string[] fields that hold rows, of the table or of each item of the list; empty: the items are rows
---@field is_list? boolean a list, or a table by id
---@field is_of_page? boolean a page that is put above brings its own along

---@class (exact) sanderling.transcript.blocks.Kind
---@field draw? table<string, sanderling.transcript.blocks.Draw> by the type of event
---@field beside? string[] types of events that are not the model's: they can happen at any moment of its answer
---@field new? fun(): table<string, any> what a transcript remembers by it, by the names of its fields
---@field rows? table<string, sanderling.transcript.blocks.Rows> by the names of the transcript's fields

---@type table<string, sanderling.transcript.blocks.Draw> by the type of event
M.draw = {}
---@type table<string, true> by the type of event
M.is_beside = {}
---@type (fun(): table<string, any>)[]
local makers = {}
---@type table<string, sanderling.transcript.blocks.Rows> by the names of the transcript's fields
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

--- Draw `event`, if one of the kinds does. What the last turn took stays with it when text comes below.
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

--- The fields of an empty transcript.
---@return table<string, any>
function M.new_fields()
  local fields = {}
  for _, new in ipairs(makers) do
    fields = vim.tbl_extend('error', fields, new())
  end
  return fields
end

---@param item table
---@param fields any[] that hold rows
---@param from integer
---@param delta integer
local function shift_fields(item, fields, from, delta)
  for _, field in ipairs(fields) do
    if item[field] and item[field] >= from then
      item[field] = item[field] + delta
    end
  end
end

--- Rows were put in before the row `from`, or as many as `-delta` taken out that stood right before it.
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

--- Put what `page` remembers above what `transcript` does; the rows of both are right already.
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
