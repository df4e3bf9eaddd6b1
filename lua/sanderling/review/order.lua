--- The order of a walk through changes: callees before their callers, tests last.
local M = {}

local TEST_FILE = { '^test[_%.]', '[_%.]test%.', '[_%.]spec%.', 'Tests?%.%w+$', '^conftest%.' }
local TEST_DIRECTORIES = { test = true, tests = true, spec = true, specs = true, __tests__ = true }

--- Does a file test others?
---@param path string relative to the project
---@return boolean
function M.is_test(path)
  local name = vim.fs.basename(path)
  return vim.iter(vim.split(vim.fs.dirname(path), '/', { plain = true })):any(function(directory)
    return TEST_DIRECTORIES[directory] or false
  end) or vim.iter(TEST_FILE):any(function(pattern)
    return name:find(pattern) ~= nil
  end)
end

---@alias sanderling.review.order.Uses table<integer, table<integer, true>> which steps each step uses, by number

--- Order the numbers from 1 to `count`. Steps that use each other stay in their order.
---@param count integer
---@param uses sanderling.review.order.Uses
---@param is_test fun(number: integer): boolean
---@return integer[]
function M.sorted(count, uses, is_test)
  local tests = {} ---@type table<integer, boolean>
  for number = 1, count do
    tests[number] = is_test(number)
  end
  local order, seen = {}, {} ---@type integer[], table<integer, true>
  local function visit(number)
    seen[number] = true
    local used = vim.tbl_keys(uses[number] or {})
    table.sort(used)
    for _, other in ipairs(used) do
      if not seen[other] and (tests[number] or not tests[other]) then
        visit(other)
      end
    end
    order[#order + 1] = number
  end
  for _, are_tests in ipairs({ false, true }) do
    for number = 1, count do
      if not seen[number] and tests[number] == are_tests then
        visit(number)
      end
    end
  end
  return order
end

return M
