-- The figures of fairlock for redis_exporter, which takes from INFO only fields that it knows:
--
--     redis_exporter --script=redis_exporter.lua
--
-- They become redis_script_values{key="fairlock_..."}.
local figures = {}
for name, number in string.gmatch(redis.call('INFO', 'fairlock'), '(fairlock_[%w_]+):(%d+)\r?\n') do
    figures[#figures + 1] = name
    figures[#figures + 1] = number
end
return figures
