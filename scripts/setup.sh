#!/bin/sh
# Make .venv or bring it up to date: the exact set of constraints.txt, and this project installed in place.
# Nothing is done when the last run finished and nothing that matters has changed since, the folder's own place included.
set -eu
cd "$(dirname "$0")/.."
needs="$(pwd; cat settings.ini setup.py pyproject.toml constraints.txt scripts/setup.sh)"
ready="$(printf '%s' "$needs" | cksum)"
[ "$(cat .venv/.ready 2>/dev/null)" = "$ready" ] && exit 0

# A Python that really starts (a version manager's stand-in may not) and can make environments.
usable() { "$1" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
here() { head -n 1 .venv/bin/pip 2>/dev/null | grep -qF "$(pwd)/.venv/bin/"; }

if ! usable .venv/bin/python || ! here; then
  python=
  for name in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
    if usable "$name"; then python="$name"; break; fi
  done
  if [ -z "$python" ]; then
    echo "setup: no Python 3.11 or newer with the venv module was found; install one, or name it: make setup PYTHON=/path/to/python3" >&2
    exit 2
  fi
  echo "setup: making .venv with $python ($("$python" -V)); the first time takes a minute or two, and most of it is torch"
  "$python" -m venv --clear .venv
else
  echo "setup: bringing .venv up to date"
fi
install() {
  PYTHONWARNINGS=ignore .venv/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt "$@"
}
install --upgrade pip setuptools wheel
# compat: the folder itself on the path, so that a script beside a clone called gamerl finds the package, not the clone
install --no-build-isolation --config-settings editable_mode=compat --editable '.[dev,docs,doors,serve,endpoint]'
printf '%s' "$ready" > .venv/.ready
echo "setup: ready"
