-- Settings of luacheck for lua/, scripts/ and the Lua tests.
std = "lua54"
cache = false
codes = true
-- not (x <= y) differs from x > y for a NaN, and is written on purpose
ignore = { "581" }
max_line_length = 100
