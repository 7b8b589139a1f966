#!/usr/bin/env bash
# Installs the peers into the folder that is named, with the ordinary clients npm and pip. Needs Node 20 or later.
set -euo pipefail
base=$(mkdir -p "$1" && cd "$1" && pwd)
[ -f "$base/installed" ] && exit 0
cd "$base"

python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check \
    pycrdt-websocket pycrdt-store websockets uvloop uvicorn

package() {
    mkdir -p "$base/$1" && cd "$base/$1"
    [ -f package.json ] || npm init -y >/dev/null
}
package hocuspocus
npm install --no-audit --no-fund --ignore-scripts --silent \
    @hocuspocus/server@4 @hocuspocus/extension-sqlite@4 yjs@13 y-protocols@1
# The package of better-sqlite3 holds no binary: it is built against the headers of the local Node.
npm_config_nodedir="$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")" \
    npm rebuild --silent better-sqlite3 --build-from-source

# The newest of its range pulls a protocols package that was made for another Yjs; the lowest works.
package y-websocket-server
npm install --no-audit --no-fund --legacy-peer-deps --silent @y/websocket-server@0.1.5 @y/protocols@1.0.6-1

touch "$base/installed"
