-- Sends the requests of a file in turn, each with a number of its own, and prints what came of it as JSON.
-- Arguments: the file (see workload.py) and the first number. The key is in the environment.

local MARK = "@NUMBER@"
local number = 0
local requests = {}

local function split(body)
  local at, last = body:find(MARK, 1, true)
  if not at then return body, nil end
  return body:sub(1, at - 1), body:sub(last + 1)
end

function init(args)
  number = tonumber(args[2])
  wrk.headers["Content-Type"] = "application/json"
  local key = os.getenv("MEMSTRATA_KEY")
  if key and key ~= "" then wrk.headers["Authorization"] = "Bearer " .. key end
  for line in io.lines(args[1]) do
    local method, path, body = line:match("^[^\t]*\t([^\t]*)\t([^\t]*)\t(.*)$")
    local before, after = split(body)
    local whole = after == nil and wrk.format(method, path, nil, body ~= "" and body or nil) or nil
    requests[#requests + 1] = { method = method, path = path, before = before, after = after, whole = whole }
  end
end

function request()
  number = number + 1
  local one = requests[number % #requests + 1]
  return one.whole or wrk.format(one.method, one.path, nil, one.before .. number .. one.after)
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('\n{"answers": %d, "seconds": %.6f, "errors": %d, "p50_ms": %.3f, "p99_ms": %.3f}\n',
    summary.requests - errors.status, summary.duration / 1e6, failed,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
