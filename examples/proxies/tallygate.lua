-- http-request lua.tallygate asks the decision server, and passes its denials to the client.
-- While it is away, txn.tallygate is "away", and the configuration decides.
local url = "http://127.0.0.1:8080/v1/forward-auth"

core.register_action("tallygate", { "http-req" }, function(txn)
  local headers = {
    ["x-original-method"] = { txn.sf:method() },
    ["x-original-uri"] = { txn.sf:pathq() },
    ["x-tallygate-ip"] = { txn.sf:src() },
  }
  local user = txn:get_var("txn.uid") -- the configuration sets it
  if user and user ~= "" then
    headers["x-tallygate-uid"] = { user }
  end

  local answer = core.httpclient():get { url = url, headers = headers, timeout = 250 }
  if answer.status == 204 then
    local permit = (answer.headers["x-tallygate-permit"] or {})[0]
    if permit and permit ~= "" then
      txn.http:req_set_header("x-tallygate-permit", permit)
    end
    return
  end
  local status = answer.status or 0
  local doubt = status == 503 and (answer.headers["content-type"] or {})[0] == "application/problem+json" -- HAProxy's own 503 has another type
  if not doubt and (status < 400 or status >= 500) then -- a 4xx is about this request, whatever it says
    txn:set_var("txn.tallygate", "away")
    return
  end
  local reasons = { [400] = "Bad Request", [429] = "Too Many Requests", [503] = "Service Unavailable" }
  local reply = txn:reply { status = status, reason = reasons[status] or "Denied", body = answer.body }
  for _, name in ipairs { "retry-after", "ratelimit", "ratelimit-policy", "content-type", "cache-control" } do
    for _, value in pairs(answer.headers[name] or {}) do
      reply:add_header(name, value)
    end
  end
  txn:done(reply)
end)
