# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_pillion_global_optspecs
    string join \n scheduler= config= json P/parsable2 n/noheader o/format= h/help V/version
end

function __fish_pillion_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_pillion_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_pillion_using_subcommand
    set -l cmd (__fish_pillion_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c pillion -n "__fish_pillion_needs_command" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_needs_command" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_needs_command" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_needs_command" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_needs_command" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_needs_command" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_needs_command" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_needs_command" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "queue" -d 'Jobs that wait for a decision: why, and until when'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "pairs" -d 'Which jobs share which device, now or in the past'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "why" -d 'What your job waits for; or how fast it ran, and what made it slow'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "report" -d 'What your job used and cost on one screen, and what to do next time'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "explain" -d 'Everything that is known about one job: what was decided, why, and what came of it'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "acct" -d 'What sharing gained: GPU-hours, kilowatt-hours, promises kept'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "profile" -d 'What is remembered of workloads alone on a device'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "characterize" -d 'Runs a batch script alone under several caps, as ordinary jobs, and says how fast it is under each'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "canary" -d 'Runs your own scripts on one node of the pool, each alone and then two at a time, as ordinary jobs, and holds what was foretold against what was measured'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "model" -d 'Which models were learnt, which one is in use, and the backtests that decided it'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "plan" -d 'What would be decided, without doing it: on the live queue, a saved snapshot, or CSV files'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "backtest" -d 'Replays random queues against measured pairs and compares policies'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "replay" -d 'What last month would have looked like with Pillion, from what sacct printed; needs nothing installed, changes nothing'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "scale" -d 'How many GPUs a training is worth: break-even, deadline and budget, from runs at different counts; of files it needs nothing installed'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "snapshot" -d 'Saves the input of the engine, to be replayed with \'plan --view\''
complete -c pillion -n "__fish_pillion_needs_command" -f -a "doctor" -d 'Looks at Slurm, the nodes\' set-up and the scheduler, and says what is missing and how to mend it'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "slurm-conf" -d 'Prints what Slurm\'s files need for a pool, as a diff; writes nothing'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "setup" -d 'Shows what this host needs beside the packages, and does it with --yes; --undo takes it back'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "config" -d 'Checks, shows and prints the configuration file'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "keygen" -d 'Makes the secret that scheduler and agents share where they do not prove by MUNGE who they are'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "rescue" -d 'Gives back released jobs that did not start; needs Slurm only'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "poke" -d 'Tells the scheduler to look at the queue now; for a hook: 2 seconds at most, never fails'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "nodes" -d 'Every device of the nodes: how it is, since when, and where its metrics come from'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "status" -d 'How the scheduler and its agents are'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "drain" -d 'Keeps new jobs away from nodes or GPUs; what runs there goes on. For operators'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "undrain" -d 'Lets jobs onto drained nodes or GPUs again. For operators'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "evict" -d 'Ends a job that shares a GPU and starts it again, alone. For operators'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "policy" -d 'The rules that are in force: each value, where it comes from, and what it means'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "idle" -d 'GPUs that jobs hold and do not use: whose, since when, and a text for a mail'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "rightsize" -d 'Workloads that would have done with a smaller GPU, less memory or fewer GPUs, and a text for a mail'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "shadow" -d 'What would have been done in observed partitions (mode = "shadow"), and what came of the jobs'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "events" -d 'What happened to nodes and jobs: faults, victims, evictions, drains'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "top" -d 'The pool, live: who is on which GPU, what it does, and who waits'
complete -c pillion -n "__fish_pillion_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand queue" -s u -l user -d 'Only this user\'s jobs' -r
complete -c pillion -n "__fish_pillion_using_subcommand queue" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand queue" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand queue" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand queue" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand queue" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand queue" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand queue" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand queue" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s S -l start -d 'From this time on: 2026-11-21, 2026-11-21T14:05:00, 14:05, today, now-2hours' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s E -l end -d 'Until this time' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s u -l user -d 'Only pairings with a job of this user' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s W -l workload -d 'Only pairings with this workload, by its name or its key' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -l limit -d 'At most so many decisions, newest first' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -l active -d 'Only what runs or is planned now (the default without -S and -E)'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s a -l all -d 'Jobs that run alone, too'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand pairs" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand why" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand why" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand why" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand why" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand why" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand why" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand why" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand why" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand report" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand report" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand report" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand report" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand report" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand report" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand report" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand report" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand explain" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand explain" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand explain" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand explain" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand explain" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand explain" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand explain" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand explain" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s S -l start -d 'Runs that ended from this time on [default: today]' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s E -l end -d 'Until this time [default: now]' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s u -l user -d 'Only this user\'s' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s A -l account -d 'Only this account\'s' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s p -l partition -d 'Only in this partition' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s W -l workload -d 'Only of this workload, by its name or its key' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s w -l nodes -d 'Only on these nodes: n1,n[3-5]' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s b -l by -d 'One row for each' -r -f -a "user\t'The user'
account\t'The account'
partition\t'The partition'
workload\t'The workload'
node\t'The node'
instance\t'The size of the MIG instance that they had to themselves'
day\t'The day on which they ended'"
complete -c pillion -n "__fish_pillion_using_subcommand acct" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand acct" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pillion -n "__fish_pillion_using_subcommand acct" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand profile" -s u -l user -d 'Only this user\'s workloads' -r
complete -c pillion -n "__fish_pillion_using_subcommand profile" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand profile" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand profile" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand profile" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand profile" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand profile" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand profile" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand profile" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l caps -d 'Parts of the GPU: 0.1, 0.2, .. 0.9' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l gpus -d 'Instead of caps: how it scales over these numbers of GPUs, as ordinary jobs one after the other, without Pillion' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l cpus -d 'With each of these numbers of CPUs a GPU' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l runs -d 'Runs under each cap, and without one, or with each number of GPUs' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l sbatch -d 'One more option for sbatch, such as --sbatch=--time=30; may be given several times' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l no-wait -d 'Submit what is due, say how it stands, and end; the same command goes on later'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l again -d 'Measure anew what was measured before'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand characterize" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -s w -l node -d 'The node of the pool [default: the only one]' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l runs -d 'Runs of each script alone, before any pair' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l pairs -d 'So many pairs, drawn by --seed [default: every script beside every one, itself too]' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l seed -d 'By which pairs are drawn: the same seed draws the same' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l max-slowdown -d 'The promise of each in a pair: at most so many times its time alone; a wide one admits nearly every pair' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l sbatch -d 'One more option for sbatch, such as --sbatch=--time=30; may be given several times' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand canary" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l dry-run -d 'Print what would be submitted, and submit nothing'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l no-wait -d 'Submit what is due, say how it stands, and end; the same command goes on later'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l again -d 'Measure anew what was measured before'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand canary" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand model" -l limit -d 'At most so many, newest first' -r
complete -c pillion -n "__fish_pillion_using_subcommand model" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand model" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand model" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand model" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand model" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand model" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand model" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand model" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l view -d 'On a snapshot made by \'pillion snapshot save\'' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l solo -d 'On files: how each workload runs alone (CSV)' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l queue -d 'The jobs that wait (CSV); a job is its row, from 0' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l history -d 'What was measured of workloads together (CSV); the model learns from it' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l running -d 'The jobs that run and may be joined (CSV)' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l allow -d 'The only combinations of workloads and caps that may be chosen (CSV)' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l device -d 'The device model that the jobs are to run on [default: the one that all of PAIRS.csv names]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l mechanism -d 'How the device is shared: mps, ccs or none [default: mps]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l device-memory -d 'The device\'s memory in bytes: 85899345920, 8e10 [default: everything fits]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l devices -d 'On files, with --mig: how many devices are free [default: 1]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l max-slowdown -d 'The promise: shared time over solo time, at most, 1 to 10 [default: 1.25]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l users -d 'Who may be on one device: same-user, same-account or any [default: same-user]' -r -f -a "same-user\t'Jobs of one user'
same-account\t'Jobs of one account'
any\t'Anybody\'s jobs'"
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l isolation -d 'What stands between jobs of different users: shared (nothing) or hard (a wall) [default: shared]' -r -f -a "shared\t'Nothing'
hard\t'A wall'"
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l broken-budget -d 'How many of the jobs that share may be expected to break their promise, 0 to 1 [default: 0.02]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l objective -d 'What counts [default: throughput]' -r -f -a "throughput\t'GPU-hours saved'
energy\t'Energy saved'
throughput-per-watt\t'Work per joule'"
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l caps -d 'Whether caps may be set [default: on]' -r -f -a "on\t'Yes'
off\t'No'"
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l max-tenants -d 'How many jobs may share a device, 1 to 16, of which more than 4 are copies of one workload [default: 2]' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l trials -d 'Whether pairs outside the bounds are tried, where both jobs count their progress [default: off]' -r -f -a "on\t'Yes'
off\t'No'"
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand plan" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l live -d 'On the live queue, as the scheduler sees it'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l candidates -d 'Also print every way of sharing that was considered, with the rule that excluded it'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l mig -d 'Print what each device would be cut into (MIG), with who has which part of it; one that nobody told how to cut is taken to be cut as its model can be'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pillion -n "__fish_pillion_using_subcommand plan" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l solo -d 'How each workload runs alone (CSV)' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l pairs -d 'What was measured of workloads together (CSV)' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l mig -d 'Replays how a device is cut into MIG instances, by speeds that were measured in them (CSV), instead of pairs: queues of 60 jobs on one device [--device: a100-40]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l groups -d 'What was measured of three and more together (CSV): says how far they are foretold by what is known of fewer, instead of replaying pairs' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l queues -d 'Jobs in each queue' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l seeds -d 'How many times the families are split and the queues drawn' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l observed -d 'How many pairings of new workloads were observed when warm' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l max-slowdown -d 'The promise: shared time over solo time, at most [default: 1.25; of --mig: 2.5, 1.67 and 1.25]' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l observe -d 'Which pairings were observed then: by chance, or those that an optimist would let share' -r -f -a "random\t'By chance'
chosen\t'Those that an optimist would let share'"
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l trial-seconds -d 'How long two are tried before their speeds are known [default: 60]' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l restart-seconds -d 'What it takes whoever goes back to start again [default: 60]' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l device -d 'The device model whose pairs are replayed [default: the one that all pairs are of]' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l mechanism -d 'How the device is shared where PAIRS.csv does not say: mps, ccs or none' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l plot -d 'Draws the gain of all pairs, the calibration and the learning curve into this folder (SVG); of a week the share of the oracle and the regret' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l jobs -d 'Jobs in each of the four rounds of a day' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l recur -d 'Of the jobs, how many run what ran in an earlier round; the others run something new' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l first-runs -d 'What becomes of the first run of something new' -r -f -a "alone\t'It has its device to itself'
host\t'Others join it after its first minutes'"
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l versions -d 'Whether something new is known as a later version of what it is a version of' -r -f -a "on\t'Yes'
off\t'No'"
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l trials -d 'Also replay the planner with trials: pairs outside the bounds are tried and taken apart where they break'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l week -d 'A fresh installation over a simulated week of recurring jobs, instead of single queues'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l watch -d 'Pairs that are seen to break a promise after a minute are taken apart, and the guest begins anew'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pillion -n "__fish_pillion_using_subcommand backtest" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l fields -d 'What \'sacct -e\' printed here: fields that it does not name are left out' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s S -l start -d 'From this time on, as sacct takes it' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s E -l end -d 'Until this time, as sacct takes it' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l telemetry -d 'How jobs used their GPUs (CSV): docs/evaluate.md names the columns' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l prometheus -d 'Instead: the address of the site\'s Prometheus, which is asked (read only) what dcgm-exporter and jobstats\' exporter told it' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l scripts -d 'What jobs ran: what \'sacct --batch-script -j JOBS\' printed, or a folder of scripts named by job numbers (17.sh)' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l nodes -d 'What \'scontrol show nodes\' printed' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l shape -d 'Instead: nodes by number, GPUs, type, CPUs and memory (16x4:a100:64:512); more than once for several kinds' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l gpu-memory -d 'The memory of a type of GPU in GiB (a100=80), where neither the type nor jobstats tells it; more than once for several' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l order -d 'By what jobs are served [default: as is nearer to the real waits]' -r -f -a "submit\t'By when they became eligible'
priority\t'By Slurm\'s priority'"
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l pool -d 'Sizes of the pool: a part of the nodes with GPUs (25%) or a number of them (8) [default: 25%,50%; from 10,000 jobs 50%]' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l adoption -d 'Shares of the users whose jobs share [default: 25%,50%; from 10,000 jobs 50%]' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l users -d 'Who may share with whom' -r -f -a "same-user\t'Jobs of one user'
same-account\t'Jobs of one account'
any\t'Anybody\'s jobs'"
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l max-slowdown -d 'The promise: shared time over solo time, at most, 1 to 10 [default: 1.25]' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l max-tenants -d 'How many jobs may share a device' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l mechanism -d 'How GPUs are shared: mps, ccs or none' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l seeds -d 'How often each setting is drawn [default: 5; from 10,000 jobs 3]' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l plan-seconds -d 'Seconds between two plans at least [default: 10; from 10,000 jobs 60]' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l idle-watts -d 'What a GPU draws at rest, in watts' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l price -d 'What a GPU-hour costs, in whatever you count in' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l carbon -d 'Grams of carbon dioxide a kilowatt-hour: a number, or a file of \'seconds since 1970,grams\'' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l html -d 'Also writes the report as one page that can be printed and sent' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l print-sacct -d 'Prints the sacct command that writes what is read here, and ends'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l print-queries -d 'Prints what --prometheus asks, and ends'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -a "anonymise" -d 'Writes the files anew without people and names: equal names stay equal within them, and mean nothing outside'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and not __fish_seen_subcommand_from anonymise help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -l nodes -d 'What \'scontrol show nodes\' printed' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -l output -d 'The folder for sacct.txt and nodes.txt, which must not be there yet' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from anonymise" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from help" -f -a "anonymise" -d 'Writes the files anew without people and names: equal names stay equal within them, and mean nothing outside'
complete -c pillion -n "__fish_pillion_using_subcommand replay; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l from -d 'Runs, a row each (CSV): docs/scale.md names the columns; MLPerf\'s results and Sia\'s measurements are known by theirs. Without this and --sacct: completed runs that the scheduler knows' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l sacct -d 'What the command of \'pillion replay --print-sacct\' wrote: of it the completed jobs' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l by -d 'What is compared of runs that the scheduler knows: how long they took, or what each came forward a second by its own counter (`PILLION_PROGRESS`), in the pool' -r -f -a "elapsed\t'How long they took'
progress\t'What they came forward a second'"
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l gpu-model -d 'Only runs on this model of GPU, as the file spells it' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l gpus-per-node -d 'GPUs of a node: counts that do not fill nodes are left out [default: as runs on several nodes show]' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l efficiency -d 'The least that a GPU may be worth, of what it is worth at the smallest measured count: break-even is the largest count that keeps it' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l deadline -d 'How many GPUs are done in this time, as sbatch takes it: 90, 1:30:00, 2-00:00:00' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l budget -d 'How many GPUs may be had for this: 40gpuh, 12kwh, or 100 in what --price counts in; more than once for several' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l price -d 'What a GPU-hour costs, in whatever you count in' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l work -d 'Of how many units of progress times and costs are told, where they are told by progress a second [default: 1]' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand scale" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand scale" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand scale" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand scale" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand scale" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pillion -n "__fish_pillion_using_subcommand scale" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -f -a "save" -d 'Writes the live view to a file'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and not __fish_seen_subcommand_from save help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from save" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from help" -f -a "save" -d 'Writes the live view to a file'
complete -c pillion -n "__fish_pillion_using_subcommand snapshot; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -l plugin-dir -d 'Where the SPANK plugin is looked for besides plugstack.conf\'s own paths' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -s q -l quiet -d 'Only what is not well'
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l nodes -d 'The pool\'s nodes, as Slurm names them: n[1-2]' -r
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l partition -d 'The pool\'s partition [default: the first of pool.partitions, else shared]' -r
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l devices -d 'The device files of a node, in the order of their indexes [default: /dev/nvidia0 .., as many as slurm.conf names]' -r
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l directory -d 'Where slurm.conf is [default: the directory of SLURM_CONF, else /etc/slurm]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand slurm-conf" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l nodes -d 'Of a controller: the pool\'s nodes, as Slurm names them: n[1-2]' -r
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l partition -d 'Of a controller: the pool\'s partition [default: the first of pool.partitions, else shared]' -r
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l devices -d 'Of a controller: the device files of a node, in the order of their indexes [default: /dev/nvidia0 .., as many as slurm.conf names]' -r
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l backend -d 'Of a node without /etc/pillion/pillion.toml: by what its GPUs are read' -r -f -a "nvidia\t'NVIDIA\'s driver'
intel\t'Intel\'s driver, through Level Zero'
simulated\t'Simulated GPUs'"
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l directory -d 'Where slurm.conf is [default: the directory of SLURM_CONF, else /etc/slurm]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand setup" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l yes -d 'Do what is shown, not only show it'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l undo -d 'Take back what setup did here, if nobody has changed it since'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pillion -n "__fish_pillion_using_subcommand setup" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -f -a "check" -d 'Reads the file as each program does, and says what is wrong: file, line, key and what is allowed'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -f -a "show" -d 'What is in force, and whether the file, the environment or a default says so'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -f -a "migrate" -d 'Shows what is to be changed in a file of an earlier release, as a difference that patch takes; changes nothing'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -f -a "example" -d 'Prints a commented file with every setting and its default'
complete -c pillion -n "__fish_pillion_using_subcommand config; and not __fish_seen_subcommand_from check show migrate example help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from check" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from show" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from migrate" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from example" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "check" -d 'Reads the file as each program does, and says what is wrong: file, line, key and what is allowed'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "show" -d 'What is in force, and whether the file, the environment or a default says so'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "migrate" -d 'Shows what is to be changed in a file of an earlier release, as a difference that patch takes; changes nothing'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "example" -d 'Prints a commented file with every setting and its default'
complete -c pillion -n "__fish_pillion_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -l rotate -d 'Put a new key in front of the one that is there, which is taken for a day more'
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand keygen" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -l older-than -d 'Undo releases older than so many seconds' -r
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -l dry-run -d 'Say what would be done, and do nothing'
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand rescue" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand poke" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand poke" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand poke" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand poke" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand poke" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand poke" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand poke" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand poke" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand nodes" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand status" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand status" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand status" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand status" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand status" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand status" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand status" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand status" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand drain" -s r -l reason -d 'Why: everybody reads it, in \'nodes\', \'queue\' and \'explain\'' -r
complete -c pillion -n "__fish_pillion_using_subcommand drain" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand drain" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand drain" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand drain" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand drain" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand drain" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand drain" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand drain" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -s r -l reason -d 'Why, for the record' -r
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand undrain" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand evict" -s r -l reason -d 'Why: the job\'s user reads it, in \'why\' and \'report\'' -r
complete -c pillion -n "__fish_pillion_using_subcommand evict" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand evict" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand evict" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand evict" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand evict" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand evict" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand evict" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand evict" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand policy" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand policy" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand policy" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand policy" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand policy" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand policy" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand policy" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand policy" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand idle" -l for -d 'Without work for so long at least: 30m, 1h, 2d' -r
complete -c pillion -n "__fish_pillion_using_subcommand idle" -l busy-below -d 'Busy less than this part of each minute: 1%, 5%, 10% or 25%' -r
complete -c pillion -n "__fish_pillion_using_subcommand idle" -s u -l user -d 'Only this user\'s jobs' -r
complete -c pillion -n "__fish_pillion_using_subcommand idle" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand idle" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand idle" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand idle" -l mail -d 'Print a text for each user instead, to be sent by mail'
complete -c pillion -n "__fish_pillion_using_subcommand idle" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand idle" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand idle" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand idle" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand idle" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -s u -l user -d 'Only this user\'s workloads' -r
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -l runs -d 'Only what ran so often at least, alone' -r
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -l mail -d 'Print a text for each user instead, to be sent by mail'
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand rightsize" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -f -a "report" -d 'What would have been decided in a stretch of time: who would have shared, whether they fit, what it would have saved and risked'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and not __fish_seen_subcommand_from report help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s S -l start -d 'Of starts that were decided on from this time on [default: today]' -r
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s E -l end -d 'Until this time [default: now]' -r
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from report" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from help" -f -a "report" -d 'What would have been decided in a stretch of time: who would have shared, whether they fit, what it would have saved and risked'
complete -c pillion -n "__fish_pillion_using_subcommand shadow; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand events" -s S -l start -d 'From this time on [default: today]' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -s E -l end -d 'Until this time [default: now]' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -s N -l nodes -d 'Only on these nodes: n1,n[3-5]' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -s j -l jobs -d 'Only of these jobs: 33,33_2' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -s k -l kinds -d 'Only of these kinds: drained, device-fault, victim' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -l limit -d 'At most so many, the newest' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand events" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand events" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand events" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand events" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand events" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand events" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand top" -l scheduler -d 'Where the scheduler listens: unix:/path/to/socket or https://host:port' -r
complete -c pillion -n "__fish_pillion_using_subcommand top" -l config -d 'The configuration file [default: /etc/pillion/pillion.toml]' -r -F
complete -c pillion -n "__fish_pillion_using_subcommand top" -s o -l format -d 'Only these columns, in this order: jobid,user,reason' -r
complete -c pillion -n "__fish_pillion_using_subcommand top" -l once -d 'Print one frame as text, and end'
complete -c pillion -n "__fish_pillion_using_subcommand top" -l json -d 'Print one JSON object'
complete -c pillion -n "__fish_pillion_using_subcommand top" -s P -l parsable2 -d 'Print cells separated by \'|\', without one at the end'
complete -c pillion -n "__fish_pillion_using_subcommand top" -s n -l noheader -d 'Print no column names'
complete -c pillion -n "__fish_pillion_using_subcommand top" -s h -l help -d 'Print help'
complete -c pillion -n "__fish_pillion_using_subcommand top" -s V -l version -d 'Print version'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "queue" -d 'Jobs that wait for a decision: why, and until when'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "pairs" -d 'Which jobs share which device, now or in the past'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "why" -d 'What your job waits for; or how fast it ran, and what made it slow'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "report" -d 'What your job used and cost on one screen, and what to do next time'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "explain" -d 'Everything that is known about one job: what was decided, why, and what came of it'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "acct" -d 'What sharing gained: GPU-hours, kilowatt-hours, promises kept'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "profile" -d 'What is remembered of workloads alone on a device'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "characterize" -d 'Runs a batch script alone under several caps, as ordinary jobs, and says how fast it is under each'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "canary" -d 'Runs your own scripts on one node of the pool, each alone and then two at a time, as ordinary jobs, and holds what was foretold against what was measured'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "model" -d 'Which models were learnt, which one is in use, and the backtests that decided it'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "plan" -d 'What would be decided, without doing it: on the live queue, a saved snapshot, or CSV files'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "backtest" -d 'Replays random queues against measured pairs and compares policies'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "replay" -d 'What last month would have looked like with Pillion, from what sacct printed; needs nothing installed, changes nothing'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "scale" -d 'How many GPUs a training is worth: break-even, deadline and budget, from runs at different counts; of files it needs nothing installed'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "snapshot" -d 'Saves the input of the engine, to be replayed with \'plan --view\''
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "doctor" -d 'Looks at Slurm, the nodes\' set-up and the scheduler, and says what is missing and how to mend it'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "slurm-conf" -d 'Prints what Slurm\'s files need for a pool, as a diff; writes nothing'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "setup" -d 'Shows what this host needs beside the packages, and does it with --yes; --undo takes it back'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "config" -d 'Checks, shows and prints the configuration file'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "keygen" -d 'Makes the secret that scheduler and agents share where they do not prove by MUNGE who they are'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "rescue" -d 'Gives back released jobs that did not start; needs Slurm only'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "poke" -d 'Tells the scheduler to look at the queue now; for a hook: 2 seconds at most, never fails'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "nodes" -d 'Every device of the nodes: how it is, since when, and where its metrics come from'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "status" -d 'How the scheduler and its agents are'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "drain" -d 'Keeps new jobs away from nodes or GPUs; what runs there goes on. For operators'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "undrain" -d 'Lets jobs onto drained nodes or GPUs again. For operators'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "evict" -d 'Ends a job that shares a GPU and starts it again, alone. For operators'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "policy" -d 'The rules that are in force: each value, where it comes from, and what it means'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "idle" -d 'GPUs that jobs hold and do not use: whose, since when, and a text for a mail'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "rightsize" -d 'Workloads that would have done with a smaller GPU, less memory or fewer GPUs, and a text for a mail'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "shadow" -d 'What would have been done in observed partitions (mode = "shadow"), and what came of the jobs'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "events" -d 'What happened to nodes and jobs: faults, victims, evictions, drains'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "top" -d 'The pool, live: who is on which GPU, what it does, and who waits'
complete -c pillion -n "__fish_pillion_using_subcommand help; and not __fish_seen_subcommand_from queue pairs why report explain acct profile characterize canary model plan backtest replay scale snapshot doctor slurm-conf setup config keygen rescue poke nodes status drain undrain evict policy idle rightsize shadow events top help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from replay" -f -a "anonymise" -d 'Writes the files anew without people and names: equal names stay equal within them, and mean nothing outside'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from snapshot" -f -a "save" -d 'Writes the live view to a file'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "check" -d 'Reads the file as each program does, and says what is wrong: file, line, key and what is allowed'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "show" -d 'What is in force, and whether the file, the environment or a default says so'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "migrate" -d 'Shows what is to be changed in a file of an earlier release, as a difference that patch takes; changes nothing'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "example" -d 'Prints a commented file with every setting and its default'
complete -c pillion -n "__fish_pillion_using_subcommand help; and __fish_seen_subcommand_from shadow" -f -a "report" -d 'What would have been decided in a stretch of time: who would have shared, whether they fit, what it would have saved and risked'
