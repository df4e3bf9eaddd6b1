--- Skills to choose from, with their texts; the chosen one begins the prompt.
local M = {}

local lazy = require('sanderling.ui.lazy')
local message = require('sanderling.ui.message')
local open = require('sanderling.chat.open')
local picker = lazy('sanderling.picker')
local words = require('sanderling.ui.words')

local NONE = 'No skills here: `:help sanderling-skills` says where they are looked for.'
local MAX_LINE_CELLS = 200 -- |vim.ui.select()| would fill the screen with long descriptions
local UNTRUSTED = ' The project has some, which :Agent trust shows.'

---@param skill sanderling.ShownSkill
---@return boolean
local function is_used(skill)
  return (skill.name or '') ~= ''
end

---@param skill sanderling.ShownSkill
---@return string
local function line_of(skill)
  if is_used(skill) then
    local text = words.plain(('%s: %s'):format(skill.name, skill.description))
    return words.fitting(text, MAX_LINE_CELLS)
  end
  return words.plain(('not used: %s: %s'):format(skill.path, skill.problems[#skill.problems]))
end

---@param skill sanderling.ShownSkill
---@return string Markdown
local function text_of(skill)
  local lines = { words.plain(skill.path), '' }
  if skill.description then
    vim.list_extend(lines, { words.plain(skill.description), '' })
  end
  for _, problem in ipairs(skill.problems or {}) do
    lines[#lines + 1] = '- ' .. words.plain(problem)
  end
  return table.concat(lines, '\n') .. '\n\n' .. (skill.text or '')
end

---@param session sanderling.chat.session.Session
---@param skill sanderling.ShownSkill
local function begin(session, skill)
  open.open(session.id, session.project, {})
  local lines = session.prompt:lines()
  lines[1] = ('/%s %s'):format(skill.name, lines[1] or '')
  session.prompt:set(lines)
end

--- Let the user choose a skill, which begins the prompt.
---@param session sanderling.chat.session.Session
function M.choose(session)
  session:ask({ type = 'list_skills' }, function(found, is_here)
    local skills = found.skills or {}
    if #skills == 0 then
      return message.tell(NONE .. (#(found.untrusted or {}) > 0 and UNTRUSTED or ''))
    elseif not is_here then
      return message.tell('Skills loaded. Run :Agent skills again to choose one.')
    end
    picker.choose(skills, {
      title = 'Skills',
      kind = 'sanderling_skill',
      line_of = line_of,
      preview = function(skill, show)
        show(text_of(skill))
      end,
      actions = {
        {
          name = 'Use',
          refusal = function(skill)
            if not is_used(skill) then
              return words.plain('This skill is not used: ' .. skill.problems[#skill.problems])
            end
            return not skill.is_command and 'Only the model can use this skill.' or nil
          end,
          run = function(skill)
            begin(session, skill)
          end,
        },
      },
    })
  end)
end

return M
