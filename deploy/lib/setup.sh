# shellcheck shell=bash
# Installs what is missing and finds a Slurm new enough: the machine's own, or a Debian 13 root that is made once and
# cached. For the tests it fetches vendors' own parts besides. Sourced after common.sh by deploy/demo and tests/run; leaves
# no service running and no package half installed.

PILLION_CACHE="${PILLION_CACHE:-/var/cache/pillion}"
# Which Debian it is of: another one where a caller of find_slurm says so, and then never the machine's own Slurm.
DEFAULT_SUITE=trixie
ROOT_SUITE=$DEFAULT_SUITE
# The root of the demo, and what the tests need on top of it. Their digest names the cached root, so a change here makes a
# new one.
ROOT_PACKAGES=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge postgresql lua5.3 procps)
ROOT_PACKAGES_FOR_TESTS=(slurmdbd mariadb-server valgrind gcc libc6-dev patch libfaketime)
# What no stable release has.
ROOT_PACKAGES_OF_SID=(apptainer)

# A policy of the machine's own is left alone.
[[ -e /usr/sbin/policy-rc.d ]] || PILLION_POLICY=/usr/sbin/policy-rc.d

# install_compiler: what cargo itself needs; everything else may come while it builds.
install_compiler() {
    command -v cc >/dev/null || install_wanted gcc libc6-dev
}

# install_missing: what running the programs and the unit tests needs on the machine itself.
install_missing() {
    local wanted=()
    command -v lua5.3 >/dev/null || wanted+=(lua5.3)
    # The real loader of Level Zero, for the tests of the Intel backend.
    [[ -n $(compgen -G '/usr/lib/*/libze_loader.so.1') ]] || wanted+=(libze1)
    [[ -n $(postgres_bin) ]] || wanted+=(postgresql)
    install_wanted "${wanted[@]}"
}

# install_for_tests: what only the tests need, besides.
install_for_tests() {
    local wanted=()
    install_missing
    # The tests of metrics, dashboards and alert rules run one of their own; its promtool comes with it.
    if [[ ! -x /usr/bin/prometheus || ! -x /usr/bin/promtool ]]; then
        wanted+=(prometheus)
        # The package enables its service: nobody asked for one on this machine, now or after the next start.
        [[ -e /lib/systemd/system/prometheus.service || -e /etc/systemd/system/prometheus.service ]] || {
            mkdir -p /etc/systemd/system
            ln -s /dev/null /etc/systemd/system/prometheus.service
        }
    fi
    # For the tests of the web page, with a font.
    command -v chromium >/dev/null || wanted+=(chromium fonts-dejavu-core)
    # For what it says of the units.
    [[ -x /usr/bin/systemd-analyze ]] || wanted+=(systemd)
    # What the admin guide has an admin use, where the tests run on this machine's own Slurm.
    command -v patch >/dev/null || wanted+=(patch)
    install_wanted "${wanted[@]}"
    bring_vendor_parts
}

# install_wanted PACKAGE...: or ends with what to look at.
install_wanted() {
    if (($# == 0)); then return; fi
    step "install $*" apt_install "$@" ||
        die "could not install $*: is the package mirror $(debian_mirror) reachable?"
}

# postgres_bin: the folder of the newest PostgreSQL server on the machine, or nothing.
postgres_bin() {
    local found
    found=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
    [[ -x $found/initdb ]] || found=$(pg_config --bindir 2>/dev/null || true)
    if [[ -x $found/initdb ]]; then printf '%s\n' "$found"; fi
}

# apt_install PACKAGE...: without services: packages may not start any while a policy of ours stands.
apt_install() {
    local status=0
    # Steps run in a shell of their own, so this trap is only for here. With it the policy goes even when this is stopped.
    [[ -z ${PILLION_POLICY:-} ]] || trap 'rm -f "$PILLION_POLICY"' EXIT
    trap 'exit 143' TERM
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
        mkdir -p /etc/postgresql-common
        printf '# written by the setup of Pillion: its tests run servers of their own\ncreate_main_cluster = false\n' \
            >/etc/postgresql-common/createcluster.conf
    fi
    if [[ -n ${PILLION_POLICY:-} ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$PILLION_POLICY"
        chmod 755 "$PILLION_POLICY"
    fi
    export DEBIAN_FRONTEND=noninteractive
    local options=(-y --no-install-recommends -o Dpkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold)
    # A list that is too old names packages that the mirror no longer has: then once more with fresh lists.
    apt-get "${options[@]}" install "$@" ||
        { apt-get -o DPkg::Lock::Timeout=300 update && apt-get "${options[@]}" install "$@"; } || status=$?
    return "$status"
}

# debian_mirror: the machine's own, from deb822 and from one-line sources; security archives and others are passed over.
debian_mirror() {
    local found
    found=$(
        {
            { cat /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } | awk '
                function flush() { if (types ~ /(^| )deb( |$)/ && enabled != "no" && uris != "") print uris; types = uris = enabled = "" }
                /^[[:space:]]*$/ { flush() }
                /^[Tt]ypes:/ { types = $0; sub(/^[^:]*:[[:space:]]*/, "", types) }
                /^[Uu][Rr][Ii]s:/ { uris = $2 }
                /^[Ee]nabled:/ { enabled = tolower($2) }
                END { flush() }'
            { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
                sed -nE 's/^[[:space:]]*deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p'
        } | sed -nE '\#^https?://.*/debian/?$#p' | sed -n 1p
    )
    printf '%s\n' "${found:-http://deb.debian.org/debian}"
}

# slurm_is_supported "slurm-wlm 24.11.5": at least 23.11.7, and not 25.05.0.
slurm_is_supported() {
    local version
    version=$(grep -oE '[0-9]+\.[0-9]+\.[0-9]+' <<<"$1" | head -n 1)
    [[ -n $version && $version != 25.05.0 ]] || return 1
    [[ $(printf '%s\n23.11.7\n' "$version" | sort -V | head -n 1) == 23.11.7 ]]
}

# shellcheck disable=SC2034 # PILLION_SLURM is for the caller
# find_slurm for-demo|for-tests: sets PILLION_ROOT to "/" or to a cached root, making it if need be, and PILLION_SLURM to what it is.
# PILLION_ROOT_GIVEN: a root that somebody else made, and no other.
find_slurm() {
    local own mirror roomy
    local -a tests=("${ROOT_PACKAGES_FOR_TESTS[@]}")
    [[ $ROOT_SUITE != sid ]] || tests+=("${ROOT_PACKAGES_OF_SID[@]}")
    if [[ -n ${PILLION_ROOT_GIVEN:-} ]]; then
        take_root "$PILLION_ROOT_GIVEN"
        return
    fi
    own=$(slurmctld -V 2>/dev/null || true)
    if [[ $ROOT_SUITE == "$DEFAULT_SUITE" ]] && slurm_is_supported "$own" && command -v slurmd munged >/dev/null; then
        PILLION_ROOT=/
        PILLION_SLURM="$own, installed on this machine"
        return
    fi
    roomy=$(cached_root "${tests[@]}")
    PILLION_ROOT=$roomy
    # The demo takes the tests' root where there is one.
    [[ $1 == for-tests || -e $roomy/.pillion-ready ]] || PILLION_ROOT=$(cached_root)
    PILLION_SLURM="Debian $ROOT_SUITE root in $PILLION_ROOT"
    [[ -e $PILLION_ROOT/.pillion-ready ]] && return
    mirror=$(debian_mirror)
    mkdir -p "$PILLION_CACHE"
    enough_disk "$PILLION_CACHE" 1500
    command -v debootstrap >/dev/null || step "install debootstrap" apt_install debootstrap ||
        die "could not install debootstrap: is the package mirror $mirror reachable?"
    step "make a Debian $ROOT_SUITE root with Slurm (once, some minutes)" make_root "$(cached_root)" "$mirror" "" "${ROOT_PACKAGES[@]}" ||
        die "could not make the Debian $ROOT_SUITE root from $mirror: is the mirror reachable, and is there disk space?"
    [[ $PILLION_ROOT == "$roomy" ]] || return 0
    step "add to it what the tests need" make_root "$roomy" "$mirror" "$(cached_root)" "${tests[@]}" ||
        die "could not add ${tests[*]} from $mirror: is the mirror reachable, and is there disk space?"
}

# cached_root PACKAGE...: where the root with these packages besides the demo's is, or will be.
cached_root() {
    local name=debian13
    [[ $ROOT_SUITE == "$DEFAULT_SUITE" ]] || name=debian-$ROOT_SUITE
    printf '%s/%s-%s\n' "$PILLION_CACHE" "$name" "$(sha256sum <<<"$ROOT_SUITE ${ROOT_PACKAGES[*]} $*" | cut -c1-12)"
}

# take_root FOLDER: a root with a Slurm, whoever made it; what is missing in it is said now, not by a test later.
# shellcheck disable=SC2034 # for the caller of find_slurm
take_root() {
    local root version program missing=()
    root=$(realpath -e "$1" 2>/dev/null) || die "there is no folder $1"
    version=$(chroot "$root" slurmctld -V 2>/dev/null) || die "$root has no slurmctld that runs: it is to be the root of a system with Slurm"
    slurm_is_supported "$version" || die "the Slurm in $root is not supported: $version"
    for program in slurmd slurmdbd sbatch sacct munged mariadbd lua5.3 patch valgrind cc; do
        chroot "$root" sh -c "command -v $program" >/dev/null || missing+=("$program")
    done
    [[ -n $(compgen -G "$root/usr/lib/postgresql/*/bin/initdb") ]] || missing+=(postgresql)
    ((${#missing[@]} == 0)) || die "$root lacks what the tests run: ${missing[*]}"
    PILLION_ROOT=$root
    PILLION_SLURM="$version in $root"
}

# make_root FOLDER MIRROR BASE PACKAGE...: BASE, or a new root where that is empty, with the packages. Whole or not at all; two
# runs at once wait for each other.
make_root() {
    local root=$1 mirror=$2 base=$3 building="$1.building"
    shift 3
    exec 9>"$PILLION_CACHE/lock"
    flock 9
    if [[ -e $root/.pillion-ready ]]; then
        exec 9>&-
        return 0
    fi
    use_apt_proxy
    # In a mount namespace of its own: whatever is mounted for the packages' scripts is gone when it ends, however it ends.
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -euc '
            building=$1 suite=$2 mirror=$3 base=$4; shift 4
            rm -rf --one-file-system "$building"
            if [[ $base ]]; then
                cp -a --reflink=auto "$base" "$building"
                rm "$building/.pillion-ready"
            else
                debootstrap --variant=minbase "$suite" "$building" "$mirror"
            fi
            cd "$building"
            printf "#!/bin/sh\nexit 101\n" >usr/sbin/policy-rc.d
            chmod 755 usr/sbin/policy-rc.d
            mkdir -p etc/postgresql-common
            echo "create_main_cluster = false" >etc/postgresql-common/createcluster.conf
            mount -t proc proc proc
            mount --rbind /dev dev
            export DEBIAN_FRONTEND=noninteractive LC_ALL=C
            # What a mirror has of a suite that moves may be weeks old: it is signed, and that is what counts in a root for tests.
            chroot . apt-get -o Acquire::Check-Valid-Until=false update
            chroot . apt-get install -y --no-install-recommends "$@"
            rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* usr/share/doc usr/share/man
            umount -R dev proc' make-root "$building" "$ROOT_SUITE" "$mirror" "$base" "$@" 9>&- || return 1
    slurm_is_supported "$(chroot "$building" slurmctld -V)" || {
        echo "the Slurm in it is not supported: $(chroot "$building" slurmctld -V)"
        return 1
    }
    touch "$building/.pillion-ready"
    mv -T "$building" "$root"
    exec 9>&-
}

# Machines of their own, with systemd as process 1 (tests/install): what all of them have, and besides it what hosts of a kind
# have, each a layer above the first. Their digest names the folder.
# python3 and python3-apt: what Ansible asks of a host; rpm: to install ours on a host that has another way to what they depend on.
MACHINE_BASE=(systemd-sysv dbus iproute2 procps patch munge slurm-client python3 python3-apt rpm)
MACHINE_KINDS=("controller slurmctld postgresql" "node slurmd slurm-wlm-basic-plugins")

# find_machines: sets PILLION_MACHINES to the folder with the layers, making them if need be.
# shellcheck disable=SC2034 # PILLION_MACHINES is for the caller
find_machines() {
    local mirror kind
    PILLION_MACHINES=$(printf '%s/machines-%s' "$PILLION_CACHE" "$(sha256sum <<<"$ROOT_SUITE ${MACHINE_BASE[*]} ${MACHINE_KINDS[*]}" | cut -c1-12)")
    [[ -e $PILLION_MACHINES/.ready ]] && return
    mirror=$(debian_mirror)
    mkdir -p "$PILLION_CACHE"
    enough_disk "$PILLION_CACHE" 1500
    command -v debootstrap >/dev/null || step "install debootstrap" apt_install debootstrap ||
        die "could not install debootstrap: is the package mirror $mirror reachable?"
    step "make roots of Debian 13 with systemd and Slurm (once, some minutes)" make_machines "$PILLION_MACHINES" "$mirror" ||
        die "could not make the roots from $mirror: is the mirror reachable, and is there disk space?"
}

# make_machines FOLDER MIRROR: whole or not at all; two runs at once wait for each other.
make_machines() {
    local folder=$1 mirror=$2 building="$1.building" kind
    exec 9>"$PILLION_CACHE/lock-machines"
    flock 9
    if [[ -e $folder/.ready ]]; then
        exec 9>&-
        return 0
    fi
    use_apt_proxy
    rm -rf --one-file-system "$building"
    mkdir -p "$building/base"
    debootstrap --variant=minbase --include="$(IFS=, && echo "${MACHINE_BASE[*]}")" "$ROOT_SUITE" "$building/base" "$mirror" 9>&- || return 1
    rm -rf "$building"/base/var/cache/apt/archives/*.deb "$building"/base/var/lib/apt/lists/*
    for kind in "${MACHINE_KINDS[@]}"; do
        # shellcheck disable=SC2086 # words of their own
        add_layer "$building" $kind 9>&- || return 1
    done
    touch "$building/.ready"
    mv -T "$building" "$folder"
    exec 9>&-
}

# add_layer FOLDER KIND PACKAGE...: what the packages add to the base, as the upper folder of an overlay. In a mount namespace of
# its own: what is mounted is gone when it ends, however it ends.
add_layer() {
    # shellcheck disable=SC2016
    unshare --mount --propagation private bash -euc '
            folder=$1 kind=$2; shift 2
            mkdir -p "$folder/$kind" "$folder/work" "$folder/root"
            mount -t overlay overlay "$folder/root" -o "lowerdir=$folder/base,upperdir=$folder/$kind,workdir=$folder/work"
            cd "$folder/root"
            mount -t proc proc proc
            mount --rbind /dev dev
            # The scheduler runs a server of its own.
            mkdir -p etc/postgresql-common
            echo "create_main_cluster = false" >etc/postgresql-common/createcluster.conf
            export DEBIAN_FRONTEND=noninteractive LC_ALL=C
            chroot . apt-get update
            chroot . apt-get install -y --no-install-recommends "$@"
            rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/*
            umount -R dev proc
            cd /
            umount "$folder/root"
            rm -rf "$folder/work" "$folder/root"' add-layer "$@"
}

# use_apt_proxy: debootstrap does not read apt's configuration.
use_apt_proxy() {
    local proxy=""
    eval "$(apt-config shell proxy Acquire::http::Proxy)"
    if [[ -n $proxy && $proxy != DIRECT && -z ${http_proxy:-} ]]; then export http_proxy=$proxy; fi
}

# Vendors' own parts, which the tests hold the doubles and the agent against (tests/hardware/vendor): a folder each, with the
# suite, the component and the packages. They run without a device, are never installed, and are no part of what we ship.
# Where they are not to be had, those tests say that they did not run.
VENDOR_PARTS=(
    "nvidia trixie non-free nvidia-cuda-mps libnvidia-ml1"
    # No stable release has it. It wants glibc 2.38, and the rest of what it needs comes along.
    "intel sid main libze-intel-gpu1 libze1 libigdgmm12 libstdc++6 libgcc-s1"
)

# bring_vendor_parts: to where a testbed sees them, beside our programs.
bring_vendor_parts() {
    local part name folder begun programs
    [[ -z ${PILLION_VENDOR_ASKED:-} ]] || return 0
    PILLION_VENDOR_ASKED=yes
    programs="$(target_dir)/debug"
    for part in "${VENDOR_PARTS[@]}"; do
        name=${part%% *} begun=$SECONDS
        folder="$PILLION_CACHE/vendor-$name-$(sha256sum <<<"$part" | cut -c1-12)"
        if [[ ! -e $folder ]]; then
            # shellcheck disable=SC2086 # words of their own
            run_child fetch_vendor_part "$folder" "$(debian_mirror)" ${part#* } >"$PILLION_LOG_DIR/vendor-$name.log" 2>&1 || {
                printf '%5d s  --    the parts of %s are not to be had: tests of them do not run (%s)\n' \
                    $((SECONDS - begun)) "$name" "$PILLION_LOG_DIR/vendor-$name.log"
                rm -rf "$programs/vendor/$name"
                continue
            }
            printf '%5d s  ok    fetch the parts of %s: %s\n' $((SECONDS - begun)) "$name" "$(paste -sd, "$folder/versions")"
        fi
        cmp -s "$folder/versions" "$programs/vendor/$name/versions" || place_vendor_part "$folder" "$programs/vendor/$name"
    done
}

# place_vendor_part FOLDER AT
place_vendor_part() {
    local new="$2.$$"
    mkdir -p "$(dirname "$2")"
    rm -rf "$new"
    # Linked where that goes, for it is large.
    cp -al "$1" "$new" 2>/dev/null || { rm -rf "$new" && cp -a "$1" "$new"; }
    rm -rf "$2"
    mv -T "$new" "$2"
}

# fetch_vendor_part FOLDER MIRROR SUITE COMPONENT PACKAGE...: the programs and libraries of the packages, whole or not at all;
# two runs at once wait for each other. By apt with folders of its own, so that each package is checked against Debian's
# signature and nothing of the machine's is touched.
fetch_vendor_part() {
    local folder=$1 mirror=$2 suite=$3 component=$4 building="$1.building" keyring deb
    shift 4
    mkdir -p "$PILLION_CACHE"
    exec 8>"$PILLION_CACHE/lock-vendor"
    flock 8
    [[ ! -e $folder ]] || return 0
    keyring=$(compgen -G '/usr/share/keyrings/debian-archive-keyring.[gp][gp][gp]' | head -n 1)
    [[ -n $keyring ]] || { echo "no debian-archive-keyring on this machine" && return 1; }
    rm -rf "$building"
    mkdir -p "$building"/{etc,lists/partial,cache/archives/partial,debs,tree,parts}
    echo "deb [signed-by=$keyring] $mirror $suite $component" >"$building/etc/debian.list"
    : >"$building/status"
    local options=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$building/etc" -o Dir::State::Lists="$building/lists"
        -o Dir::State::status="$building/status" -o Dir::Cache="$building/cache" -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Retries=1 -o Acquire::http::Timeout=20
        -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any)
    timeout 120 apt-get "${options[@]}" update || return 1
    (cd "$building/debs" && timeout 300 apt-get "${options[@]}" download "$@") || return 1
    for deb in "$building"/debs/*.deb; do
        dpkg-deb -x "$deb" "$building/tree" || return 1
        # shellcheck disable=SC2016 # dpkg-deb's own variables
        dpkg-deb -W --showformat='${Package} ${Version}\n' "$deb" >>"$building/parts/versions" || return 1
    done
    # Programs and libraries lie in one folder: a daemon looks for its server beside itself.
    find "$building/tree/usr" \( -path '*/bin/*' -o -path '*/sbin/*' -o -name 'lib*.so*' ! -name '*.py' \) ! -type d \
        -exec cp -a -t "$building/parts" {} + || return 1
    chmod -R a+rX "$building/parts"
    mv -T "$building/parts" "$folder"
    rm -rf "$building"
}
