#!/bin/sh
# Install the counterfactual monitor from a wheel and the lock file: environment, user, folders.
#
#   install.sh [--prefix DIR] [--state DIR] [--user NAME] [--uid NUMBER] [--python PROGRAM] [--wheels DIR]
#              WHEEL LOCK
#
#   --prefix   folder of the program, read-only afterwards (/opt/cfmon)
#   --state    the only folder the monitor writes to (/var/lib/cfmon)
#   --user     user of the monitor and owner of the state folder; created by root if it does not exist (cfmon)
#   --uid      user id of a created user (10001)
#   --python   3.11 or newer, with venv (python3)
#   --wheels   install only from this folder, without a package index
#
# Every downloaded file must have a hash in LOCK. Run the script again to upgrade or repair. The Containerfile and the
# tests run this script too. Exit status: 0 installed, 1 a step failed, 2 usage.
set -eu
umask 022

say() { printf 'install: %s\n' "$*"; }
fail() { printf 'install: %s\n' "$1" >&2; exit "${2:-1}"; }

prefix=/opt/cfmon state=/var/lib/cfmon user=cfmon uid=10001 python=python3 wheels=''
while [ $# -gt 0 ]; do
    case $1 in
        --prefix | --state | --user | --uid | --python | --wheels)
            [ $# -ge 2 ] || fail "$1 needs a value" 2
            case $1 in
                --prefix) prefix=$2 ;;
                --state) state=$2 ;;
                --user) user=$2 ;;
                --uid) uid=$2 ;;
                --python) python=$2 ;;
                --wheels) wheels=$2 ;;
            esac
            shift 2
            ;;
        -h | --help) sed -n '2,/^set/{s/^# \{0,1\}//p;}' "$0"; exit 0 ;;
        -*) fail "there is no option $1; see --help" 2 ;;
        *) break ;;
    esac
done
[ $# -eq 2 ] || fail "usage: install.sh [OPTIONS] WHEEL LOCK; see --help" 2
wheel=$1 lock=$2
for file in "$wheel" "$lock"; do
    [ -f "$file" ] || fail "$file: there is no such file" 2
done
case $wheel in
    *-none-any.whl) fail "$wheel: is not compiled; build it where gcc and Python's headers are installed" 2 ;;
esac
for folder in "$prefix" "$state"; do
    case $folder in /*) ;; *) fail "$folder: must be an absolute path" 2 ;; esac
done
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    || fail "$python: python 3.11 or newer is needed; name one with --python" 2

# ---- the user, and the only folder it writes to
if [ "$(id -u)" -eq 0 ]; then
    if ! id "$user" >/dev/null 2>&1; then
        say "making the user $user ($uid)"
        groupadd --system --gid "$uid" -K SYS_GID_MAX="$uid" "$user"
        useradd --system --uid "$uid" -K SYS_UID_MAX="$uid" --gid "$user" --no-create-home --home-dir "$state" \
            --shell /usr/sbin/nologin "$user"
    fi
    install -d -m 750 -o "$user" -g "$(id -g "$user")" "$state"
else
    say "not root: $state belongs to $(id -un)"
    mkdir -p "$state"
    chmod 750 "$state"
fi

# ---- the environment: exactly the locked files, and the wheel; no installer remains in it
say "making $prefix"
"$python" -m venv --without-pip "$prefix"
"$prefix/bin/python" -m ensurepip >/dev/null || fail "$python has no ensurepip (Debian: apt-get install python3-venv)"
pip() { "$prefix/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
set --
[ -z "$wheels" ] || set -- --no-index --find-links "$wheels"
say "installing what $lock names"
pip install --quiet --no-cache-dir --require-hashes --only-binary :all: "$@" --requirement "$lock"
say "installing $wheel"
pip install --quiet --no-cache-dir --no-index --no-deps --force-reinstall "$wheel"
pip check
pip uninstall --quiet --yes pip setuptools 2>/dev/null

data=$("$prefix/bin/python" -I -c 'import pathlib, monitor; print(pathlib.Path(monitor.__file__).with_name("_data"))')
ln -sfn "$data" "$prefix/share" # examples: configurations, models, policies

cat >"$prefix/cfmon.env" <<SETTINGS
OPENBLAS_NUM_THREADS=1
ORT_DISABLE_TELEMETRY=1
PYTHONUNBUFFERED=1
PYTHONDONTWRITEBYTECODE=1
SETTINGS
chmod -R go+rX,go-w "$prefix"
say "$("$prefix/bin/cfmon" --version) is in $prefix; its settings are in $prefix/cfmon.env"
