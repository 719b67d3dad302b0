    end)
    if not whole and type(reply) ~= 'table' then reply = { err = tostring(reply) } end
    replies[i] = reply
end
return replies
