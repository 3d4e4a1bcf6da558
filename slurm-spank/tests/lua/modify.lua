-- What pillion.modify lets a user change: of a managed job, of any other, and never shards.

local S = dofile("support.lua")
local pillion = S.pillion
local MARK = "pillion1;w=4f1c09aa12bc77de;part=gpu;field=job;gres=gpu:a100:1;other=lscratch:100;begin=%s"

-- The job as slurmctld knows it, waiting in the pool.
local function waiting(changes, begin)
  local rec = { partition = "shared", job_state = 0, min_cpus = 1, max_cpus = 0, tres_per_node = "gres/shard:100,gres/lscratch:100",
    admin_comment = string.format(MARK, begin or "0") }
  for name, value in pairs(changes or {}) do rec[name] = value end
  return rec
end

-- Runs an update; gives the answer, the description afterwards, and how many fields were written.
local function modify(changes, rec, uid, fails_at, parts)
  local job, values, writes = S.job(S.update(changes), fails_at)
  S.said = {}
  return pillion.modify(job, rec or waiting(), parts or S.partitions(), uid or S.ALICE), values, writes()
end

local function assert_passes(name, changes, rec, uid)
  local answer, _, writes = modify(changes, rec, uid)
  S.equal(answer, slurm.SUCCESS, name .. ": " .. tostring(S.said[1]))
  S.equal(writes, 0, name .. ": writes")
  S.equal(#S.said, 0, name .. ": " .. tostring(S.said[1]))
end

local function assert_refused(name, changes, rec, part, parts)
  S.noted = {}
  local answer, _, writes = modify(changes, rec, nil, nil, parts)
  S.equal(answer, slurm.ERROR, name)
  S.equal(writes, 0, name .. ": writes")
  S.contains(S.said[1], part, name)
  S.equal(#S.noted, 1, name .. ": lines in the log")
  S.contains(S.noted[1], "pillion: change refused uid=2001 why=", name)
end

S.test("what does not matter to us passes", function()
  for name, value in pairs({ name = "x", time_limit = 5, priority = 0, qos = "high", dependency = "afterok:1", partition = "shared" }) do
    assert_passes(name, { [name] = value })
  end
  assert_passes("nothing", {})
end)

S.test("an admin may change everything", function()
  local all = { tres_per_node = "gres/shard:g1:40", req_nodes = "n2", begin_time = 1, partition = "shared" }
  for _, comment in ipairs({ false, "x", "pillion3;w=1", "pillion1", "" }) do
    all.admin_comment = comment or nil
    assert_passes("root", all, nil, 0)
    assert_passes("SlurmUser", all, nil, 64030)
  end
end)

local CHANGES = {
  GRES = { tres_per_node = "gres/gpu:2" }, ["begin time"] = { begin_time = 4000000000 }, exclusion = { exc_nodes = "n1" },
  comment = { comment = "x" }, ["no features"] = { features = "" }, ["no node list"] = { req_nodes = "" },
  CPUs = { min_cpus = 2 }, tasks = { num_tasks = 2 }, ["CPUs by task"] = { cpus_per_task = 2 }, ["CPUs by node"] = { pn_min_cpus = 2 },
  ["CPUs, with a maximum"] = { min_cpus = 2, max_cpus = 2 },
  memory = { min_mem_per_node = 5 }, ["memory by CPU"] = { min_mem_per_cpu = 5 }, reservation = { reservation = "r" },
  partition = { partition = "long" }, ["comment and name"] = { comment = "x", name = "y" },
  ["partition and account"] = { partition = "long", account = "bio", qos = "low" },
  ["what others asked for before"] = { comment = "x", array_inx = "", dependency = "" },
}
for name, changes in pairs(CHANGES) do
  S.test("a change of " .. name .. " takes the job out of management, whole", function()
    local answer, values = modify(changes)
    S.equal(answer, slurm.SUCCESS, tostring(S.said[1]))
    S.equal(values.partition, changes.partition or "gpu")
    S.equal(values.tres_per_node, changes.tres_per_node or "gres/gpu:a100:1,gres/lscratch:100")
    if changes.begin_time then
      S.equal(values.begin_time, changes.begin_time)
    else
      assert(math.abs(values.begin_time - os.time()) <= 1)
    end
    for field, value in pairs(changes) do S.equal(values[field], value, field) end
    S.equal(#S.said, 1)
    assert_passes("afterwards it is a job like any other", changes, waiting({ partition = "gpu" }))
  end)
end

S.test("a job of several GPUs gets all of them back", function()
  local mark = "pillion2;w=4f1c09aa12bc77de;part=gpu;field=node;gres=gpu:2;other=lscratch:100;begin=0;at=g0,g1"
  local answer, values = modify({ comment = "x" }, waiting({ admin_comment = mark }))
  S.equal(answer, slurm.SUCCESS, tostring(S.said[1]))
  S.equal(values.tres_per_node, "gres/gpu:2,gres/lscratch:100")
  S.equal(values.partition, "gpu")
  assert_refused("shards", { tres_per_node = "gres/shard:g0:100,gres/shard:g1:100" }, waiting({ admin_comment = mark }), "shards are")
end)

-- What Slurm may refuse when it has moved the job already: a job outside the pool with shards would be left.
local HALVES = {
  nodes = { min_nodes = 2, max_nodes = 2 }, tasks = { num_tasks = 2 }, ["CPUs by task"] = { cpus_per_task = 2 },
  ["CPUs by node"] = { pn_min_cpus = 2 }, exclusive = { shared = 0 }, features = { features = "a100" },
  ["node list"] = { req_nodes = "n2" }, ["GPUs by job"] = { tres_per_job = "gres/gpu:1" },
  ["GPUs by task"] = { tres_per_task = "gres/gpu:1" }, ["CPUs by GPU"] = { cpus_per_tres = "gres/gpu:2" },
  binding = { tres_bind = "gres/gpu:closest" }, ["no CPUs"] = { min_cpus = 0 }, ["CPUs upside down"] = { min_cpus = 3, max_cpus = 2 },
  ["GRES to none"] = { tres_per_node = "gres/" }, ["GPUs to 0"] = { tres_per_node = "gres/gpu:0" },
  ["more CPUs than the greatest number"] = { min_cpus = 9 }, ["no tasks"] = { num_tasks = 0, max_cpus = 0 },
}
for field, value in pairs({ nice = 2147483643, priority = 65534, time_limit = 43200, time_min = 5, dependency = "afterok:1",
  prefer = "a100", extra = "x=1", wckey = "w", contiguous = 1, ntasks_per_node = 1, end_time = 4000000000, clusters = "c",
  array_inx = "1", reboot = 1 }) do
  HALVES["comment and " .. field] = { comment = "x", [field] = value }
  HALVES["partition and " .. field] = { partition = "long", [field] = value }
end
for name, changes in pairs(HALVES) do
  S.test("a change of " .. name .. " is refused, and the way in two steps told", function()
    local rec = waiting({ job_id = 7, max_cpus = 8, min_cpus = 1 })
    local target = changes.partition or "gpu"
    assert_refused(name, changes, rec, "(scontrol update JobId=7 Partition=" .. target .. ")")
    S.contains(S.noted[1], "why=halves")
    assert_passes("afterwards", changes, waiting({ partition = target }))
  end)
end

S.test("an array's task is called as scontrol calls it", function()
  local function called(fields, name)
    assert_refused(name, { features = "a100" }, waiting(fields), "JobId=" .. name .. " Partition=gpu")
  end
  called({ job_id = 40, array_job_id = 33, array_task_id = 2 }, "33_2")
  called({ job_id = 33, array_job_id = 33, array_task_id = slurm.NO_VAL }, "33")
  called({ job_id = 34, array_job_id = 0, array_task_id = slurm.NO_VAL }, "34")
end)

S.test("the user's own begin comes back", function()
  local later = string.format("%.0f", os.time() + 5000)
  local _, values = modify({ comment = "x" }, waiting({}, later))
  S.equal(string.format("%.0f", values.begin_time), later)
end)

S.test("where the user named no partition, it goes to the default one", function()
  local mark = "pillion1;w=1;part=;field=node;gres=gpu:1;other=;begin=0"
  local _, values = modify({ comment = "x" }, waiting({ admin_comment = mark }))
  S.equal(values.partition, "gpu")
  S.equal(values.tres_per_node, "gres/gpu:1")
end)

S.test("a list with a pool in it loses the pool", function()
  local mark = "pillion1;w=1;part=long,shared,gpu;field=node;gres=gpu:1;other=;begin=0"
  local _, values = modify({ comment = "x" }, waiting({ admin_comment = mark }))
  S.equal(values.partition, "long,gpu")
end)

S.test("what cannot go back is refused", function()
  local mark = "pillion1;w=1;part=%s;field=node;gres=%s;other=;begin=0"
  local pool_only = waiting({ admin_comment = string.format(mark, "shared", "gpu:1") })
  assert_refused("only ever in the pool", { comment = "x" }, pool_only, "cancel it")
  assert_refused("no request", { comment = "x" }, waiting({ admin_comment = string.format(mark, "gpu", "") }), "cancel it")
  local no_default = S.partitions({ gpu = S.partition() })
  assert_refused("no default", { comment = "x" }, waiting({ admin_comment = string.format(mark, "", "gpu:1") }), "cancel it", no_default)
  assert_refused("leased", { comment = "x" }, waiting({ admin_comment = string.format(MARK, "0") .. ";lease=5;r=0" }), "in a minute")
end)

S.test("a failing assignment is taken back and the change refused", function()
  for fails_at = 1, 3 do
    local before = { comment = "x" }
    local job, values = S.job(S.update(before), fails_at)
    local unchanged = S.copy(values)
    S.said = {}
    S.equal(pillion.modify(job, waiting(), S.partitions(), S.ALICE), slurm.ERROR, "write " .. fails_at)
    S.equal(S.differences(unchanged, values), "", "write " .. fails_at)
  end
end)

S.test("nobody but root and SlurmUser asks for shards, of whatever job", function()
  local plain = { partition = "gpu", job_state = 0, tres_per_node = "gres/gpu:1" }
  for _, rec in ipairs({ waiting(), plain }) do
    for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket" }) do
      assert_refused(field, { [field] = "gres/shard:g2:10" }, rec, "shards are given out by Pillion alone")
    end
  end
end)

S.test("nobody else moves a job into the pool", function()
  local plain = { partition = "gpu", job_state = 0 }
  assert_refused("alone", { partition = "shared" }, plain, "--colocate")
  assert_refused("in a list", { partition = "long,shared" }, plain, "--colocate")
  assert_refused("a managed one, to another", { partition = "gpu,shared" }, nil, "--colocate")
  os.remove(S.heartbeat_path)
  assert_refused("while the scheduler is down", { partition = "shared" }, plain, "--colocate")
end)

S.test("a job that is not managed is its user's", function()
  local change = { tres_per_node = "gres/gpu:2", comment = "x", begin_time = 1, req_nodes = "n1" }
  assert_passes("no mark", change, { partition = "gpu", job_state = 0 })
  assert_passes("running", { comment = "x" }, waiting({ job_state = 1 }))
end)

-- As it was: a job submitted held and without GPUs took a whole one afterwards, beside those that share.
S.test("in the pool a job without our mark gets no GPUs afterwards", function()
  local bare = { partition = "shared", job_state = 0 }
  local unknown = { ["no mark"] = bare, ["in a list"] = { partition = "cpu,shared", job_state = 0 },
    ["another tool's comment"] = { partition = "shared", job_state = 0, admin_comment = "JS1:abc" },
    ["a mark that is too long"] = waiting({ admin_comment = "pillion1;" .. string.rep("x", 600) }) }
  for what, rec in pairs(unknown) do
    assert_passes(what, { comment = "x", begin_time = 1, pn_min_cpus = 4 }, rec)
    assert_refused(what, { tres_per_node = "gres/gpu:g1:1", req_nodes = "n1" }, rec, "GPUs are asked for at the submission")
  end
  for _, change in ipairs({ { tres_per_job = "gres:gpu:1" }, { tres_per_task = "gres/gpu:1" }, { shared = 0 }, { shared = 2 } }) do
    assert_refused("in another way", change, bare, "cancel the job and submit it again")
  end
  assert_passes("out of the pool", { partition = "gpu", tres_per_node = "gres/gpu:1" }, bare)
  assert_passes("when it runs", { tres_per_node = "gres/gpu:1" }, { partition = "shared", job_state = 1 })
end)

S.test("job states carry flags", function()
  local answer, values = modify({ comment = "x" }, waiting({ job_state = 0 + 0x8000 }))
  S.equal(answer, slurm.SUCCESS)
  S.equal(values.partition, "gpu")
end)

-- Slurm hands one description to all records of an array.
local function task(number, changes)
  local rec = {
    partition = "shared", job_state = 0, min_cpus = 1, max_cpus = 0, job_id = 40 + number, array_job_id = 33, array_task_id = number,
    admin_comment = "pillion1;w=4f1c09aa12bc77de;part=gpu;field=job;gres=gpu:1;other=;begin=0",
  }
  for name, value in pairs(changes or {}) do rec[name] = value end
  return rec
end

S.test("what one task of an array is given back is not given to another that is in nobody's care", function()
  local job, values = S.job(S.update({ comment = "x" }))
  local function change(rec)
    S.equal(pillion.modify(job, rec, S.partitions(), S.ALICE), slurm.SUCCESS)
    return values.partition, values.begin_time
  end
  S.equal(change(task(1)), "gpu")
  values.tres_per_node = nil -- Slurm takes it over
  local partition, begin = change(task(2, { partition = "long" }))
  S.equal(partition, nil, "taken out before")
  S.equal(begin, 0, "taken out before")
  S.equal(change(task(3, { job_state = 1 })), nil, "runs")
  S.equal(change(task(4)), "gpu", "the next that waits for us")
  S.equal(values.tres_per_node, "gres/gpu:1")
  S.equal(values.comment, "x")
end)

S.test("what a user writes himself is never taken out of his change", function()
  -- The next update may lie where the one before lay.
  local function at_address(changes)
    local job, values = S.job(S.update(changes))
    getmetatable(job)._job_desc = "0x1"
    return job, values
  end
  for _, changes in ipairs({ { partition = "gpu" }, { partition = "gpu", begin_time = os.time() + 900 } }) do
    for _, partition in ipairs({ "shared", "long" }) do
      S.equal(pillion.modify(at_address({ comment = "x" }), task(1), S.partitions(), S.ALICE), slurm.SUCCESS)
      local job, values = at_address(changes)
      S.equal(pillion.modify(job, task(2, { partition = partition }), S.partitions(), S.ALICE), slurm.SUCCESS)
      S.equal(values.partition, "gpu")
      S.equal(values.begin_time ~= 0, partition == "shared" or changes.begin_time ~= nil)
    end
  end
end)

S.test("a guest that leaves the pool leaves the guests' QOS, and keeps one that its user named", function()
  pillion.configure({ guest_qos = "scavenger" })
  for _, named in ipairs({ false, "scavenger" }) do
    local job, values = S.batch({ tres_per_node = "gres/gpu:1", default_qos = "normal", qos = named or nil }, "guest")
    pillion.submit(job, S.partitions(), S.ALICE)
    S.equal(values.qos, "scavenger")
    local rec = task(1, { array_job_id = 0, qos = values.qos, admin_comment = values.admin_comment })
    local update, changed = S.job(S.update({ partition = "gpu", default_qos = "normal" }))
    S.equal(pillion.modify(update, rec, S.partitions(), S.ALICE), slurm.SUCCESS)
    S.equal(changed.qos, not named and "normal" or nil)
    update, changed = S.job(S.update({ partition = "gpu", default_qos = "normal", qos = "long" }))
    S.equal(pillion.modify(update, rec, S.partitions(), S.ALICE), slurm.SUCCESS)
    S.equal(changed.qos, "long", "his own word")
    rec.qos = "long"
    update, changed = S.job(S.update({ partition = "gpu", default_qos = "normal" }))
    S.equal(pillion.modify(update, rec, S.partitions(), S.ALICE), slurm.SUCCESS)
    S.equal(changed.qos, nil, "he named one since")
  end
  pillion.configure({ guest_qos = "" })
end)

S.done()
