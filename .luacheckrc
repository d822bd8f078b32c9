-- Settings of luacheck for lua/, scripts/ and the Lua tests.
std = "lua54"
cache = false
codes = true
max_line_length = 100
