-- What pillion.modify lets our own programs do to a job: only what their mark presupposes of it. Each row of
-- docs/decisions/0012-a-fence-under-slurms-lock.md, accepted and refused.

local S = dofile("support.lua")
local pillion = S.pillion
local NOW = os.time()
local BASE = "pillion1;w=4f1c09aa12bc77de;part=gpu;field=job;gres=gpu:1;other=;begin=0"

local function mark(more) return BASE .. (more or "") end
local function lease(age) return string.format(";lease=%.0f;r=0", NOW - (age or 0)) end

-- The job as slurmctld knows it, waiting in the pool.
local function waiting(changes)
  local rec = { partition = "shared", job_state = 0, priority = 5, restart_cnt = 0, admin_comment = mark() }
  for name, value in pairs(changes or {}) do rec[name] = value end
  return rec
end

local PIN = { tres_per_node = "gres/shard:g1:40", req_nodes = "n2", begin_time = NOW }
local UNPIN = { tres_per_node = "gres/shard:100", req_nodes = "", begin_time = NOW }

local function update(comment, asked)
  local changes = S.update(asked or PIN)
  changes.admin_comment = comment
  return changes
end

-- Runs an update as root or SlurmUser; gives the answer, and checks that nothing was written into it.
local function modify(comment, asked, rec, uid)
  local job, _, writes = S.job(update(comment, asked))
  S.said, S.noted, S.logged = {}, {}, {}
  local answer = pillion.modify(job, rec, S.partitions(), uid or 0)
  S.equal(writes(), 0, "writes")
  return answer
end

local function passes(name, comment, asked, rec)
  for _, uid in ipairs({ 0, 64030 }) do
    S.equal(modify(comment, asked, rec or waiting(), uid), slurm.SUCCESS, name .. ": " .. tostring(S.said[1]))
    S.equal(#S.said + #S.noted + #S.logged, 0, name .. ": " .. tostring(S.said[1]))
  end
end

local function refused(name, comment, asked, rec, why)
  for _, uid in ipairs({ 0, 64030 }) do
    S.equal(modify(comment, asked, rec or waiting(), uid), slurm.ERROR, name)
    S.equal(table.concat(S.said, "|"), "pillion: fence 1: " .. why, name)
    S.equal(table.concat(S.noted, "|"), string.format("pillion: update fenced uid=%d why=%s", uid, why), name)
  end
end

-- An update of each kind that fits a job that waits as decided.
local KINDS = {
  release = { mark(lease()), PIN },
  undo = { mark(";u=0;alone=1"), UNPIN },
  renewal = { mark(), { begin_time = NOW + 600 } },
}

S.test("a job of several GPUs has a mark of another word, and the same fence", function()
  local base = "pillion2;w=4f1c09aa12bc77de;part=gpu;field=node;gres=gpu:2;other=;begin=0;at=g0,g1"
  local both = { tres_per_node = "gres/shard:g2:100,gres/shard:g3:100", req_nodes = "n2", begin_time = NOW }
  local rec = waiting({ admin_comment = base })
  passes("release", base .. lease(), both, rec)
  passes("undo", base .. ";u=0;alone=1", both, rec)
  passes("renewal", base, { begin_time = NOW + 600 }, rec)
  refused("held", base .. lease(), both, waiting({ admin_comment = base, priority = 0 }), "the job is held")
  refused("out of date", base .. lease(40), both, rec, "the release is out of date")
  refused("moved", base .. lease(), both, waiting({ admin_comment = base, partition = "gpu" }), "the job is not in a pool")
end)

S.test("what fits is carried out", function()
  for name, kind in pairs(KINDS) do passes(name, kind[1], kind[2]) end
end)

S.test("every kind needs a job that waits, with the same mark", function()
  KINDS["own request"] = { mark(";u=0;left=1"), { tres_per_node = "gres/gpu:1", begin_time = NOW } }
  for name, kind in pairs(KINDS) do
    local partition = name == "own request" and "gpu" or "shared"
    local function against(what, changes, why)
      changes.partition = partition
      refused(name .. ", " .. what, kind[1], kind[2], waiting(changes), why)
    end
    against("running", { job_state = 1 }, "the job does not wait")
    against("ended, with a flag", { job_state = 3 + 0x8000 }, "the job does not wait")
    for what, comment in pairs({ none = false, ["another tool's"] = "JS1:abc", empty = "", ["too long"] = mark(string.rep("x", 600)),
      ["another workload's"] = "pillion1;w=0000000000000000;part=gpu;gres=gpu:1", ["one without a workload"] = "pillion1;part=gpu" }) do
      local rec = waiting({ partition = partition })
      rec.admin_comment = comment or nil
      refused(name .. ", mark: " .. what, kind[1], kind[2], rec, "the job carries another mark")
    end
    against("given back", { admin_comment = mark(";u=0;left=1") }, "the job was given back")
    passes(name .. ", requeued and still completing", kind[1], kind[2], waiting({ partition = partition, job_state = 0x8000 }))
    local nameless = string.gsub(kind[1], "w=%x+;", "w=;")
    refused(name .. ", without a workload", nameless, kind[2], waiting({ partition = partition, admin_comment = nameless }),
      "the job carries another mark")
    refused(name .. ", too long", kind[1] .. ";x=" .. string.rep("x", 600), kind[2], waiting({ partition = partition }),
      "its mark cannot be read")
  end
  KINDS["own request"] = nil
end)

S.test("nothing but its own request is given to a job outside the pool", function()
  for name, kind in pairs(KINDS) do
    for _, partition in ipairs({ "gpu", "gpu,shared", "" }) do
      refused(name .. " in '" .. partition .. "'", kind[1], kind[2], waiting({ partition = partition }), "the job is not in a pool")
    end
  end
end)

S.test("the heartbeat tells which pools there are, however old it is", function()
  S.beat(5000, "off", "pool=big cpus=64 memory_mib=500000 features= gpu_types=h100")
  for name, kind in pairs(KINDS) do
    passes(name, kind[1], kind[2], waiting({ partition = "big" }))
    passes(name .. ", one that is configured", kind[1], kind[2])
    refused(name, kind[1], kind[2], waiting({ partition = "gpu" }), "the job is not in a pool")
  end
end)

S.test("where no pool is known at all, every partition counts as one", function()
  pillion.configure({ pools = {} })
  for _, text in ipairs({ "", "nonsense\n" }) do
    S.write_heartbeat(text)
    for name, kind in pairs(KINDS) do passes(name, kind[1], kind[2], waiting({ partition = "gpu" })) end
  end
  os.remove(S.heartbeat_path)
  for name, kind in pairs(KINDS) do passes(name, kind[1], kind[2]) end
  passes("own request", mark(";u=0;left=1"), { tres_per_node = "gres/gpu:1" }, waiting({ partition = "gpu" }))
  pillion.configure({ pools = { "shared" } })
end)

S.test("a release needs a job that is neither leased, alone, held nor restarted", function()
  local function release(name, changes, why) refused(name, mark(lease()), PIN, waiting(changes), why) end
  release("leased", { admin_comment = mark(";lease=5;r=0") }, "the job has a lease")
  release("the same lease", { admin_comment = mark(lease()) }, "the job has a lease")
  release("alone", { admin_comment = mark(";u=5;alone=1") }, "the job is to run alone")
  release("held", { priority = 0 }, "the job is held")
  release("restarted", { restart_cnt = 1 }, "the job was started meanwhile")
  refused("of an earlier start", mark(string.format(";lease=%.0f;r=2", NOW)), PIN, nil, "the job was started meanwhile")
  refused("without a count", mark(string.format(";lease=%.0f", NOW)), PIN, nil, "the job was started meanwhile")
  passes("of a later start", mark(string.format(";lease=%.0f;r=2", NOW)), PIN, waiting({ restart_cnt = 2 }))
  local rec = waiting()
  rec.restart_cnt = nil
  passes("where Slurm does not show the count", mark(lease()), PIN, rec)
  passes("a job that was undone before and is not alone", mark(lease()), PIN, waiting({ admin_comment = mark(";u=5") }))
end)

S.test("a guest that was started again waits once more, under the lease that it takes back", function()
  local again = { tres_per_node = "gres/shard:100", req_nodes = "", begin_time = NOW + 600 }
  local leased, freed = mark(";guest=1;lease=5;r=0"), mark(";guest=1;u=5")
  passes("requeued", freed, again, waiting({ admin_comment = leased, restart_cnt = 1 }))
  passes("its user holds it: the hold stays", freed, again, waiting({ admin_comment = leased, priority = 0 }))
  refused("another lease", freed, again, waiting({ admin_comment = mark(";guest=1;lease=6;r=0") }), "the job carries another lease")
  refused("no guest", mark(";u=5"), again, waiting({ admin_comment = mark(";lease=5;r=0") }), "the job has a lease")
  refused("was none", freed, again, waiting({ admin_comment = mark(";lease=5;r=0") }), "the job carries another lease")
  refused("runs alone", freed, again, waiting({ admin_comment = mark(";guest=1;lease=5;r=0;alone=1") }), "the job carries another lease")
  refused("no lease", freed, again, waiting({ admin_comment = mark(";guest=1") }), "the job carries another lease")
  refused("at once", freed, { tres_per_node = "gres/shard:100", req_nodes = "" }, waiting({ admin_comment = leased }),
    "no begin time was asked")
  refused("runs", freed, again, waiting({ admin_comment = leased, job_state = 1 }), "the job does not wait")
  refused("moved", freed, again, waiting({ admin_comment = leased, partition = "gpu" }), "the job is not in a pool")
  -- From then on it is a job that waits, whatever its mark tells of before.
  passes("renewal", freed, { begin_time = NOW + 700 }, waiting({ admin_comment = freed }))
  passes("release", mark(";guest=1" .. lease()), PIN, waiting({ admin_comment = freed }))
  passes("undo", mark(";guest=1;u=0;alone=1"), UNPIN, waiting({ admin_comment = freed }))
end)

S.test("a release that was decided long ago is refused", function()
  passes("25 s ago", mark(lease(25)), PIN)
  passes("by a clock that is fast", mark(lease(-25)), PIN)
  for _, age in ipairs({ 36, -36, 100000 }) do
    refused(age .. " s ago", mark(lease(age)), PIN, nil, "the release is out of date")
  end
  refused("no time at all", mark(";lease=x;r=0"), PIN, nil, "the release is out of date")
end)

S.test("an undo takes back the lease that it names, and no other", function()
  local leased = waiting({ admin_comment = mark(";lease=5;r=0") })
  passes("that lease", mark(";u=5;alone=1"), UNPIN, leased)
  refused("none", mark(";u=0;alone=1"), UNPIN, leased, "the job carries another lease")
  refused("another", mark(";u=6;alone=1"), UNPIN, leased, "the job carries another lease")
  refused("not said", mark(";alone=1"), UNPIN, leased, "the job carries another lease")
  refused("one that is gone", mark(";u=5;alone=1"), UNPIN, nil, "the job carries another lease")
  passes("without a lease", mark(";u=0;alone=1"), UNPIN)
  passes("again", mark(";u=0;alone=1"), UNPIN, waiting({ admin_comment = mark(";u=5;alone=1") }))
  -- One that lets a job on several nodes go presupposes what a release does.
  local function go(age, restarts) return mark(string.format(";go=%.0f:%d;u=0;alone=1", NOW - (age or 0), restarts or 0)) end
  passes("let go", go(), UNPIN)
  passes("let go once more", go(), UNPIN, waiting({ admin_comment = go(500) }))
  refused("let go and held", go(), UNPIN, waiting({ priority = 0 }), "the job is held")
  refused("let go and started meanwhile", go(), UNPIN, waiting({ restart_cnt = 1 }), "the job was started meanwhile")
  refused("let go long ago", go(31), UNPIN, nil, "it was let go too long ago")
  refused("let go by nobody knows what", mark(";go=x;u=0;alone=1"), UNPIN, waiting({ restart_cnt = 0 }), "the job was started meanwhile")
  passes("an undo of one that was let go", go(500), UNPIN, waiting({ admin_comment = go(500), priority = 0, restart_cnt = 2 }))
  passes("a held job", mark(";u=5;alone=1"), UNPIN, waiting({ admin_comment = mark(";lease=5;r=0"), priority = 0 }))
  passes("a restarted job", mark(";u=5;alone=1"), UNPIN, waiting({ admin_comment = mark(";lease=5;r=0"), restart_cnt = 3 }))
  passes("the mark alone", mark(";u=5;alone=1"), {}, leased)
end)

S.test("after it ran out of memory the lease that is named is taken back, once", function()
  local leased = waiting({ admin_comment = mark(";lease=5;r=0") })
  passes("that lease", mark(";again=5"), UNPIN, leased)
  refused("another", mark(";again=6"), UNPIN, leased, "the job carries another lease")
  refused("none", mark(";again=0"), UNPIN, nil, "the job carries another lease")
  refused("one that is gone", mark(";again=5"), UNPIN, nil, "the job carries another lease")
  refused("alone by now", mark(";again=5"), UNPIN, waiting({ admin_comment = mark(";u=5;alone=1") }), "the job carries another lease")
  refused("a second time", mark(";again=9"), UNPIN, waiting({ admin_comment = mark(";again=5;lease=9;r=1") }),
    "the job carries another lease")
  refused("forgotten", mark(), { begin_time = NOW + 600 }, waiting({ admin_comment = mark(";again=5") }),
    "the job carries another lease")
  refused("no begin time", mark(";again=5"), { tres_per_node = "gres/shard:100" }, leased, "no begin time was asked")
  passes("a held job", mark(";again=5"), UNPIN, waiting({ admin_comment = mark(";lease=5;r=0"), priority = 0 }))
  passes("a restarted job", mark(";again=5"), UNPIN, waiting({ admin_comment = mark(";lease=5;r=0"), restart_cnt = 3 }))
  -- From then on it is one that waits.
  local waits = waiting({ admin_comment = mark(";again=5") })
  passes("a renewal", mark(";again=5"), { begin_time = NOW + 600 }, waits)
  passes("a release", mark(";again=5" .. lease()), PIN, waits)
  refused("a release that forgets it", mark(lease()), PIN, waits, "the job carries another lease")
  refused("a release with it", mark(";again=5" .. lease()), PIN, leased, "the job carries another lease")
  passes("an undo", mark(";again=5;u=9;alone=1"), UNPIN, waiting({ admin_comment = mark(";again=5;lease=9;r=0") }))
end)

S.test("its own request is given back outside the pool only", function()
  local own = { tres_per_node = "gres/gpu:1", req_nodes = "", begin_time = NOW }
  local out = waiting({ partition = "gpu,long", priority = 0 })
  passes("outside", mark(";u=0;left=1"), own, out)
  passes("with its lease", mark(";u=5;left=1"), own, waiting({ partition = "gpu", admin_comment = mark(";lease=5;r=0") }))
  refused("with another lease", mark(";u=6;left=1"), own, waiting({ partition = "gpu", admin_comment = mark(";lease=5;r=0") }),
    "the job carries another lease")
  refused("not said which", mark(";left=1"), own, out, "the job carries another lease")
  refused("inside", mark(";u=0;left=1"), own, nil, "the job is in a pool")
  refused("inside too", mark(";u=0;left=1"), own, waiting({ partition = "gpu,shared" }), "the job is in a pool")
end)

S.test("a renewal needs a job that waits without a lease and is not held", function()
  local later = { begin_time = NOW + 600 }
  refused("leased", mark(), later, waiting({ admin_comment = mark(";lease=5;r=0") }), "the job has a lease")
  refused("alone", mark(), later, waiting({ admin_comment = mark(";u=5;alone=1") }), "the job is to run alone")
  refused("held", mark(), later, waiting({ priority = 0 }), "the job is held")
  refused("no begin time", mark(), { tres_per_node = "gres/shard:100" }, nil, "no begin time was asked")
  refused("no begin time either", mark(), { req_nodes = "" }, nil, "no begin time was asked")
end)

S.test("the probe is refused always, and fills no log", function()
  for _, rec in ipairs({ waiting(), waiting({ partition = "gpu" }), waiting({ job_state = 1 }), waiting({ admin_comment = "x" }) }) do
    S.equal(modify(mark(), {}, rec), slurm.ERROR)
    S.equal(S.said[1], "pillion: fence 1: nothing was asked")
    S.equal(#S.noted, 0)
  end
end)

S.test("what fails in here refuses our update, and never an admin's", function()
  local function failing(field)
    return setmetatable({}, { __index = function(_, name)
      if name == field then error("told to fail") end
      return waiting()[name]
    end })
  end
  for _, field in ipairs({ "admin_comment", "job_state", "partition", "priority", "restart_cnt" }) do
    S.equal(modify(mark(lease()), PIN, failing(field)), slurm.ERROR, field)
    S.equal(S.said[1], "pillion: fence 1: something failed inside Pillion")
    S.contains(S.logged[1], "told to fail", field)
    S.equal(modify("x", PIN, failing(field)), slurm.SUCCESS, field)
    S.equal(modify(nil, PIN, failing(field)), slurm.SUCCESS, field)
  end
  local unreadable = setmetatable({}, { __index = function() error("told to fail") end })
  S.equal(pillion.modify(unreadable, waiting(), S.partitions(), 0), slurm.SUCCESS, "an update that cannot be read")
end)

S.test("a user cannot pass for us", function()
  S.equal(modify(mark(lease()), PIN, waiting(), S.ALICE), slurm.ERROR)
  S.contains(S.said[1], "shards are given out by Pillion alone")
end)

S.test("a release holds for the account, QOS and partition that were decided on", function()
  local decided = pillion.decided_on({ account = "lab", qos = "free", partition = "shared" })
  local function on(digest) return mark(";on=" .. digest .. lease()) end
  local facts = { account = "lab", qos = "free" }
  passes("as decided", on(decided), PIN, waiting(facts))
  for name, changes in pairs({ account = { account = "other", qos = "free" }, qos = { account = "lab", qos = "normal" },
    ["no account"] = { qos = "free" }, ["no QOS"] = { account = "lab" } }) do
    refused(name, on(decided), PIN, waiting(changes), "its account, QOS or partition is not what was decided on")
  end
  passes("nothing was said of it", mark(lease()), PIN, waiting(facts))
  passes("an undo asks for none of it", mark(";u=0;alone=1"), UNPIN, waiting(facts))
  local of_none = pillion.decided_on({ partition = "shared" })
  passes("Slurm without accounts", on(of_none), PIN, waiting())
end)

S.test("between its release and its start nobody but an admin charges a job to another account or QOS", function()
  local leased = ";on=" .. pillion.decided_on({ partition = "shared" }) .. lease()
  local function change(changes, more)
    local job = S.job(S.update(changes))
    S.said, S.noted, S.logged = {}, {}, {}
    return pillion.modify(job, waiting({ admin_comment = mark(more) }), S.partitions(), 2001)
  end
  for _, changes in ipairs({ { account = "other" }, { qos = "free" } }) do
    S.equal(change(changes, leased), slurm.ERROR, "leased")
    S.equal(string.match(S.said[1] or "", "is about to start on a shared GPU") ~= nil, true, tostring(S.said[1]))
    S.equal(change(changes, lease()), slurm.SUCCESS, "leased where the same holds for all")
    S.equal(change(changes), slurm.SUCCESS, "waiting")
  end
end)

S.test("whoever is started again by an admin waits until the place of before is taken back", function()
  local before = { admin_comment = mark(";lease=5;r=0"), restart_cnt = 1 }
  local function start(changes, rec, uid)
    local job, values, writes = S.job(S.update(changes))
    S.said, S.noted, S.logged = {}, {}, {}
    S.equal(pillion.modify(job, waiting(rec), S.partitions(), uid or 0), slurm.SUCCESS)
    return values.begin_time, writes()
  end
  local function waits(name, changes, rec)
    for _, uid in ipairs({ 0, 64030 }) do
      S.equal(start(changes, rec, uid) >= NOW + 20, true, name)
      S.contains(S.said[1], "its earlier start", name)
    end
  end
  local function as_asked(name, changes, rec)
    local begin, writes = start(changes, rec)
    S.equal(writes, 0, name)
    S.equal(begin, changes.begin_time or 0, name)
    S.equal(#S.said, 0, name)
  end
  local at_once = { begin_time = NOW }
  waits("at once", at_once, before)
  waits("a moment later", { begin_time = NOW + 3 }, before)
  waits("into the same partition", { begin_time = NOW, partition = "shared" }, before)
  waits("one of an array", at_once, { admin_comment = before.admin_comment, restart_cnt = 3, array_job_id = 7, array_task_id = 2 })
  as_asked("later", { begin_time = NOW + 600 }, before)
  as_asked("no begin time", { nice = 5 }, before)
  as_asked("released, and not started again", at_once, { admin_comment = mark(";lease=5;r=0") })
  as_asked("taken back already", at_once, { admin_comment = mark(";u=5;alone=1"), restart_cnt = 1 })
  as_asked("waits for a decision", at_once, { restart_cnt = 1 })
  as_asked("a job that is none of ours", at_once, { admin_comment = "x", restart_cnt = 1 })
  as_asked("still completes, and Slurm gives it the two minutes anew", at_once,
    { admin_comment = before.admin_comment, restart_cnt = 1, job_state = 0x8000 })
  waits("begins while it may still complete", { begin_time = NOW + 3 },
    { admin_comment = before.admin_comment, restart_cnt = 2, job_state = 0x8000 })
  as_asked("a place of the admin's own", { begin_time = NOW, tres_per_node = "gres/shard:g0:100", req_nodes = "n2" }, before)
  as_asked("runs", at_once, { admin_comment = before.admin_comment, restart_cnt = 1, job_state = 1 })
  as_asked("another partition", { begin_time = NOW, partition = "gpu" }, before)
  as_asked("out of the pool", at_once, { admin_comment = before.admin_comment, restart_cnt = 1, partition = "gpu" })
  as_asked("a comment of the admin's own", { begin_time = NOW, admin_comment = "mine" }, before)
  as_asked("no restart count is shown", at_once, { admin_comment = before.admin_comment, restart_cnt = false })
  -- Nobody would take it back.
  for _, beat in ipairs({ { 40 }, { 0, "off" } }) do
    S.beat(beat[1], beat[2])
    as_asked("nobody is there", at_once, before)
  end
  os.remove(S.heartbeat_path)
  as_asked("nobody ever was", at_once, before)
end)

S.test("whoever says it once more waits no longer for it", function()
  local clock, now = os.time, NOW
  os.time = function() return now end
  local function begins(restarts)
    local job, values = S.job(S.update({ begin_time = now }))
    local rec = waiting({ job_id = 71, admin_comment = mark(";lease=5;r=0"), restart_cnt = restarts })
    pillion.modify(job, rec, S.partitions(), 0)
    return values.begin_time
  end
  local first = begins(1)
  now = NOW + 15
  S.equal(begins(1), first, "once more")
  now = NOW + 21
  S.equal(begins(1), now, "and when that is over")
  S.equal(begins(2), now + 20, "another start")
  os.time = clock
end)

S.test("root's begin time is put off for the task that it is about, and for no other", function()
  local job, values = S.job(S.update({ begin_time = NOW }))
  local function task(number, more)
    local rec = waiting({ job_id = 80 + number, array_job_id = 33, array_task_id = number })
    for name, value in pairs(more) do rec[name] = value end
    S.said = {}
    pillion.modify(job, rec, S.partitions(), 0)
    return values.begin_time, #S.said
  end
  local again = { restart_cnt = 1, admin_comment = mark(";lease=5;r=0") }
  local begin, said = task(2, again)
  S.equal(begin >= NOW + 20 and said == 1, true)
  S.equal(task(3, { partition = "long", admin_comment = false }), NOW)
  begin, said = task(4, again)
  S.equal(begin >= NOW + 20 and said == 1, true)
  S.equal(task(5, {}), NOW)
end)

S.done()
