#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Says what this machine lacks, before make starts something long.
#
#   machine.sh build     what it takes to compile and to run the unit tests
#   machine.sh native    what it takes besides to test the sharing runtime
#   machine.sh cluster   also what it takes to run a Kubernetes node of our own
#
# On Debian and its kin, as root, missing packages are installed; Go is not, as
# distributions carry older versions. Run from the top of the repository.
set -eu

wanted=$(sed -n 's/^go //p' go.mod)
lacks=

lack() {
	lacks="$lacks
  - $1"
}

has() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# need PROGRAM PACKAGE WHY; a path is a file that need not be a program
need() {
	has "$1" && return 0
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		echo "installing the Debian package $2: $3" >&2
		apt-get -qq update >&2 &&
			DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$2" </dev/null >&2 || true
		has "$1" && return 0
	fi
	lack "$1 (Debian package $2): $3"
}

if [ "$(uname -s)" != Linux ]; then
	echo "make: this is $(uname -s); Tranche builds and runs on Linux only" >&2
	exit 1
fi

if ! command -v go >/dev/null 2>&1; then
	lack "Go $wanted or later, on PATH: see https://go.dev/dl/"
else
	# Outside the module no other toolchain is chosen. Go 1.21 and later fetch the wanted one unless told not to.
	have=$(cd / && go env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//')
	oldest=$(printf '%s\n%s\n' "$wanted" "${have:-0}" | sort -V | head -n 1)
	if [ "$oldest" != "$wanted" ] && ! go list -m >/dev/null 2>&1; then
		lack "Go $wanted or later: this is ${have:-unknown}, and it does not fetch another (GOTOOLCHAIN=$(go env GOTOOLCHAIN 2>/dev/null || true)); see https://go.dev/dl/"
	fi
fi

need gcc build-essential "go-nvml and the race detector are compiled with C"

case ${1:-build} in
build) ;;
native)
	need valgrind valgrind "the sharing runtime is watched by it"
	need musl-gcc musl-tools "programs that are built with another C library must not be disturbed"
	need /usr/bin/python3 python3 "programs that come by the driver through ctypes are limited"
	need /usr/lib/debug/.build-id libc6-dbg "valgrind wants the names in the C library"
	[ "$(id -u)" = 0 ] || lack "root: programs run in namespaces of their own; try sudo -E env PATH=\"\$PATH\" make"
	;;
cluster)
	need busybox busybox-static "the example pods run it"
	[ "$(id -u)" = 0 ] || lack "root: a Kubernetes node takes namespaces, mounts and cgroups; try sudo -E env PATH=\"\$PATH\" make"
	;;
*)
	echo "usage: machine.sh build|native|cluster" >&2
	exit 2
	;;
esac

if [ -n "$lacks" ]; then
	printf 'make: this machine lacks:%s\n' "$lacks" >&2
	exit 1
fi
