-- args.lua -- parses the arguments of a command that needs no recipe.

local util = require "seg.util"

local M = {}

-- args: the command and its arguments. known: option -> description of its value, false for a
-- switch; usage: the accepted arguments, for error messages. -> { name = text or true }, and the
-- words that are not options (refused unless `plain`).
function M.parse(args, known, usage, plain)
  local options, words, i = {}, {}, 2
  while args[i] do
    local name, value = args[i]:match("^%-%-([%w_]+)=?(.*)$")
    if plain and args[i]:sub(1, 1) ~= "-" then
      words[#words + 1] = args[i]
    elseif not name or known[name] == nil then
      util.refuse('%s takes %s, got "%s"; %s', args[1], usage, args[i],
                  util.suggest(name or args[i], util.sorted_keys(known)))
    elseif known[name] then
      if value == "" then
        i = i + 1
        value = args[i]
      end
      if not value then util.refuse("--%s needs a value: %s", name, known[name]) end
      options[name] = value
    else
      options[name] = true
    end
    i = i + 1
  end
  return options, words
end

return M
