# Short names for the usual commands (https://just.systems). Nothing is done here that the scripts do not do.

# What there is.
default:
    @just --list

# Format, lints, and the checks that run nothing.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy --workspace --test e2e --test demo --test hardware --test install --test simulation --test storm --locked -- -D warnings
    tests/lint

# Every check besides format and clippy: shell, lua, spelling, doc, deny.
lint *CHECKS:
    tests/lint {{CHECKS}}

# Unit tests of one package, without root: just unit pillion-core NAME
unit PACKAGE *NAME:
    cargo test --locked -p {{PACKAGE}} {{NAME}}

# Everything, or one part: just test slurm NAME (as root)
test *PART:
    tests/run {{PART}}

# Writes snapshots and generated documents anew; look at the difference afterwards.
bless:
    INSTA_UPDATE=always PILLION_BLESS=1 cargo test --locked -p pillion-config -p pillion-cli -p pillion-pairing
    PILLION_BLESS=1 cargo test --locked -p pillion-agent -p pillion-scheduler --lib --bins
    PILLION_BLESS=1 cargo test --locked -p pillion-tests --test monitoring

# Writes .sqlx/ anew, after a change of a query or a migration.
sqlx:
    tests/sqlx-prepare

# A private cluster with simulated GPUs, and what Pillion does on it (as root): just demo --keep
demo *OPTIONS:
    deploy/demo {{OPTIONS}}

# The figures of docs/benchmarks.md (as root).
bench *WHAT:
    tests/bench {{WHAT}}
