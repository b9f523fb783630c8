#!/usr/bin/env bash
# Installs the Debian packages that are missing: those that the command needs ("build"), or those
# for tests and checks too ("all"). When nothing is missing it needs neither network nor root.
set -euo pipefail

packages=(build-essential ccache cmake libcli11-dev libeigen3-dev libfmt-dev libhdf5-dev libjs-chart.js
  libopenmpi-dev libzstd-dev ninja-build nlohmann-json3-dev openmpi-bin pkg-config zlib1g-dev)
case "${1:-}" in
  build) ;;
  all)
    packages+=(chromium clang-format clang-tidy coinor-libcbc-dev git libbenchmark-dev libboost-context-dev libgmock-dev
      libgtest-dev python3 python3-venv)
    ;;
  *)
    echo "usage: $0 build|all" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: expecting the equivalents of: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) || status=""
  [[ $status == ii* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "these packages are missing, and installing them needs root or sudo: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
}
# The package lists may be absent or stale: refresh them only when installing fails without.
install >/dev/null 2>&1 || { "${as_root[@]}" apt-get update && install; }
