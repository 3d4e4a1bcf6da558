# shellcheck shell=bash
# What deploy/demo and tests/run share: progress lines, refusals in one line, and building. Sourced, never run.

# Where steps write what nobody needs to read unless they fail: a folder a run, since two may run at once. Those of runs
# before yesterday go.
PILLION_LOG_DIR="$PILLION_CHECKOUT/target/logs/$$"
find "$PILLION_CHECKOUT/target/logs" -mindepth 1 -maxdepth 1 -mtime +1 -exec rm -rf {} + 2>/dev/null || true

# What a build takes, all in all, and what it takes where it has to do with little (measured, and a little more).
ROOMY_MIB=11000
SPARING_MIB=2500

# Says in one line what is wrong, and ends.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# run_child COMMAND...: in a process group of its own, so that a signal to this script ends all of it at once. Bash would
# otherwise hold the signal back until the command ends.
run_child() {
    local status=0
    set -m
    "$@" </dev/null &
    PILLION_CHILD=$!
    set +m
    wait "$PILLION_CHILD" || status=$?
    PILLION_CHILD=
    return "$status"
}

# stop_child CODE: what the signals below do.
stop_child() {
    trap '' INT TERM HUP
    local group
    for group in ${PILLION_CHILD:-} ${PILLION_BESIDE:-}; do
        kill -TERM -- "-$group" 2>/dev/null || true
        wait "$group" 2>/dev/null || true
        kill -KILL -- "-$group" 2>/dev/null || true
    done
    # What the script keeps running outside that group.
    if declare -F at_stop >/dev/null; then at_stop || true; fi
    printf '\nstopped; nothing is left running\n' >&2
    exit "$1"
}
trap 'stop_child 130' INT
trap 'stop_child 143' TERM
trap 'stop_child 129' HUP

# beside COMMAND...: begins it while this script goes on, in a process group of its own; `join_beside` waits for it and
# shows what it printed. One at a time.
beside() {
    mkdir -p "$PILLION_LOG_DIR"
    set -m
    (
        # A subshell forgets the traps, and its own children are in groups of their own.
        trap 'stop_child 143' TERM
        PILLION_BESIDE=
        "$@"
    ) </dev/null >"$PILLION_LOG_DIR/beside.log" 2>&1 &
    PILLION_BESIDE=$!
    set +m
}

join_beside() {
    local status=0
    [[ -n ${PILLION_BESIDE:-} ]] || return 0
    wait "$PILLION_BESIDE" || status=$?
    PILLION_BESIDE=
    cat "$PILLION_LOG_DIR/beside.log"
    return "$status"
}

# took SECONDS TITLE: remembers how long a step took, for `slowest_first`.
took() {
    printf '%5d s  %s\n' "$1" "$2" >>"$PILLION_LOG_DIR/steps"
}

# slowest_first: how long each step took. Some go side by side, so together they are more than the whole.
slowest_first() {
    sort -rn "$PILLION_LOG_DIR/steps"
}

# step TITLE COMMAND...: runs it with its output in a log, and prints one line with the seconds it took. Where output
# goes to a terminal, the line shows while the step runs.
step() {
    local title=$1 log status=0 begun=$SECONDS
    shift
    mkdir -p "$PILLION_LOG_DIR"
    log="$PILLION_LOG_DIR/$(tr -cs 'a-zA-Z0-9\n' '-' <<<"$title" | cut -c1-60).log"
    [[ -t 1 ]] && printf '       ....  %s' "$title"
    run_child "$@" >"$log" 2>&1 || status=$?
    [[ -t 1 ]] && printf '\r'
    took $((SECONDS - begun)) "$title"
    if ((status == 0)); then
        printf '%5d s  ok    %s\n' $((SECONDS - begun)) "$title"
        return 0
    fi
    printf '%5d s  FAIL  %s\n' $((SECONDS - begun)) "$title"
    tail -n 30 "$log" | sed 's/^/         | /'
    printf '         (whole output: %s)\n' "$log"
    return "$status"
}

# refuse_early: everything that would make a run fail later, asked at once.
refuse_early() {
    ((EUID == 0)) || die "run this as root (mount namespaces and several users are needed): sudo $0"
    [[ $(uname -s) == Linux ]] || die "this needs Linux; found $(uname -s)"
    if ! command -v cargo >/dev/null; then
        [[ -x $HOME/.cargo/bin/cargo ]] || die "cargo was not found; install Rust (https://rustup.rs) and run this again"
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    mkdir -p "$(target_dir)" || die "cannot write to $(target_dir)"
    spare_disk
}

# spare_disk: where little is free, builds without what only helps to build again and to read traces. PILLION_SPARING says so.
# shellcheck disable=SC2034 # for the caller
spare_disk() {
    local target built
    target=$(target_dir)
    built=$(du -sm "$target" | cut -f1)
    # A machine that builds once needs nothing to build again from.
    if [[ ${CI:-} == true ]]; then export CARGO_INCREMENTAL=0; fi
    # What was built before needs little more.
    if (($(free_mib "$target") + built >= ROOMY_MIB)); then
        enough_disk "$target" 500
        return
    fi
    PILLION_SPARING=yes
    export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_TEST_DEBUG=false
    enough_disk "$target" $((SPARING_MIB - built))
    echo "         $(free_mib "$target") MiB of disk are free: building without debug information"
}

# free_mib FOLDER
free_mib() {
    echo $(($(df --output=avail -k "$1" | tail -n 1) / 1024))
}

# enough_disk FOLDER MIB
enough_disk() {
    local free
    free=$(free_mib "$1")
    ((free >= $2)) || die "$1 has $free MiB of free disk; at least $2 MiB are needed"
}

# fetch_packages: the Rust packages that the build needs, where they are not here already.
fetch_packages() {
    local target
    target=$(rustc -vV | sed -n 's/^host: //p')
    cargo fetch --locked --offline --target "$target" >/dev/null 2>&1 ||
        step "fetch the Rust packages" cargo fetch --locked --target "$target" ||
        die "could not fetch the Rust packages that Cargo.lock names: is the registry (crates.io) reachable?"
}

# Packages that only the tests run. Left out by name, so that what is built for the demo has the features that it has in the
# tests, and is not built again there.
# shellcheck disable=SC2034 # for the demo
ONLY_FOR_TESTS=(pillion-spank-neighbour pillion-nvml-double pillion-mps-double pillion-double-level-zero pillion-exporter-double pillion-gpu-checks)

# build_programs [OPTION...]: every program and library of ours, and pillion-testbed among them; sets PILLION_PROGRAMS.
build_programs() {
    fetch_packages
    step "build the programs" cargo build --workspace --locked "$@" || return 1
    PILLION_PROGRAMS="$(target_dir)/debug"
}

# testbed_arguments: sets TESTBED to the command that makes a testbed, up to the `--` before what is to run in it.
testbed_arguments() {
    TESTBED=("$PILLION_PROGRAMS/pillion-testbed" enter --root "$PILLION_ROOT" --share "$PILLION_CHECKOUT")
    [[ $PILLION_PROGRAMS == "$PILLION_CHECKOUT"/* ]] || TESTBED+=(--share "$(target_dir)")
}

# target_dir: where cargo builds, as cargo itself says.
target_dir() {
    if [[ -n ${CARGO_TARGET_DIR:-} ]]; then
        (cd "$PILLION_CHECKOUT" && realpath -m "$CARGO_TARGET_DIR")
    else
        printf '%s/target\n' "$PILLION_CHECKOUT"
    fi
}
