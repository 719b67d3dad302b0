# Sourced by the scripts that build and test: installs missing Debian and Ubuntu packages.
#
#     need_packages PACKAGE[|ALTERNATIVE]…    exits with a message if they cannot be installed
#     need_build_packages BACKEND…            installs what building these backends and their tests takes
#     need_test_packages BACKEND…             installs the servers, and the programs that tests run, too

# True when the package, or one of its alternatives, is installed.
have_package() {
    local name
    for name in ${1//|/ }; do
        if dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q ' installed$'; then return 0; fi
    done
    return 1
}

# Installs packages without starting the servers in them, since the tests start private ones. Runs in a subshell, so
# that its trap removes the policy file in any case.
install_without_starting() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap '$sudo rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
        $sudo chmod 755 "$policy"
    fi
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null
)

need_packages() {
    local package missing= log sudo=
    if ! command -v dpkg-query >/dev/null; then
        echo "cannot look for packages: this is not Debian or Ubuntu. Needed: $*" >&2
        return 0
    fi
    for package; do
        if [[ "$missing " != *" ${package%%|*} "* ]] && ! have_package "$package"; then missing="$missing ${package%%|*}"; fi
    done
    if [ -z "$missing" ]; then return 0; fi
    if [ "$(id -u)" != 0 ]; then
        sudo=sudo
        if ! command -v sudo >/dev/null; then
            echo "missing packages, and neither root nor sudo to install them:$missing" >&2
            exit 1
        fi
    fi
    echo "installing:$missing"
    log=$(mktemp)
    if ! { $sudo apt-get update -qq </dev/null && install_without_starting $missing; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        echo "cannot install:$missing" >&2
        exit 1
    fi
    rm -f "$log"
}

build_packages=(cmake ninja-build make gcc g++ libc6-dev pkg-config libcmocka-dev libevent-dev libsqlite3-dev libncurses-dev
    systemtap-sdt-dev binutils python3 util-linux procps)
test_packages=(python3-pip python3-setuptools python3-wheel python3-venv python3-yaml python3-gevent python3-eventlet
    python3-pytest python3-prometheus-client prometheus curl mypy nodejs node-typescript golang-go rustc cargo systemd doxygen
    man-db groff-base mandoc bsdextrautils valgrind spin zsh fish)

need_build_packages() {
    local backend packages=("${build_packages[@]}")
    # shellcheck disable=SC2207
    for backend; do packages+=($(tests/servers/"$backend".sh libraries)); done
    need_packages "${packages[@]}"
}

need_test_packages() {
    local backend packages=("${build_packages[@]}" "${test_packages[@]}")
    if [ ! -e /usr/include/node/node_api.h ]; then packages+=(libnode-dev); fi # packages of nodejs from elsewhere have it inside
    # shellcheck disable=SC2207
    for backend; do packages+=($(tests/servers/"$backend".sh libraries) $(tests/servers/"$backend".sh packages)); done
    need_packages "${packages[@]}"
}

# Prints the backends that are built by default.
default_backends() { sed -n 's/^set(DLOCK_BACKENDS \(.*\) CACHE .*/\1/p' CMakeLists.txt; }
