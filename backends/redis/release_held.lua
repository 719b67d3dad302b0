-- An exclusive grant that goes to the next, who asked for it exclusively.
if held == token and ARGV[2] ~= '0' then
    local heir, lease, kind, more = head()
    if heir and not joint(kind) then
        hand_over(heir, brief(lease), kind, more)
        return 1
    end
end
