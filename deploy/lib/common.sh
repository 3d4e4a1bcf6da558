# shellcheck shell=bash
# What deploy/demo and tests/run share: progress lines, refusals in one line, and building. Sourced, never run.

# Where steps write what nobody needs to read unless they fail.
PILLION_LOG_DIR="${PILLION_LOG_DIR:-$PILLION_CHECKOUT/target/logs}"

# Says in one line what is wrong, and ends.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# step TITLE COMMAND...: runs it with its output in a log, and prints one line with the seconds it took. Where output
# goes to a terminal, the line shows while the step runs.
step() {
    local title=$1 log status=0 begun=$SECONDS
    shift
    mkdir -p "$PILLION_LOG_DIR"
    log="$PILLION_LOG_DIR/$(tr -cs 'a-zA-Z0-9\n' '-' <<<"$title" | cut -c1-60).log"
    [[ -t 1 ]] && printf '       ....  %s' "$title"
    "$@" >"$log" 2>&1 </dev/null || status=$?
    [[ -t 1 ]] && printf '\r'
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
    mkdir -p "$PILLION_CHECKOUT/target" || die "cannot write to $PILLION_CHECKOUT/target"
    enough_disk "$PILLION_CHECKOUT/target" 4
}

# enough_disk FOLDER GIB
enough_disk() {
    local free
    free=$(df --output=avail -k "$1" | tail -n 1)
    ((free >= $2 * 1024 * 1024)) ||
        die "$1 has $((free / 1024)) MiB of free disk; at least $2 GiB are needed"
}

# target_dir: where cargo builds, as cargo itself says.
target_dir() {
    if [[ -n ${CARGO_TARGET_DIR:-} ]]; then
        (cd "$PILLION_CHECKOUT" && realpath -m "$CARGO_TARGET_DIR")
    else
        printf '%s/target\n' "$PILLION_CHECKOUT"
    fi
}
