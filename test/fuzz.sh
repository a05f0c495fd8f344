#!/bin/sh
# Usage: fuzz.sh TIME JOBS
#
# Runs every fuzz target for TIME, in one process each and JOBS at a time. Test
# binaries and the inputs that were worth keeping stay in build/fuzz; an input that
# breaks a target goes to testdata/fuzz beside it.
set -eu
export FUZZTIME="$1" FUZZBUILD="$PWD/build/fuzz"
mkdir -p "$FUZZBUILD"

# The directory, binary and name of each target.
for dir in $(grep -rl --include='*_test.go' --exclude-dir='.?*' --exclude-dir=build '^func Fuzz' . | sed 's|^./||' | xargs -n 1 dirname | sort -u); do
	binary=$(echo "$dir" | tr / -).test
	go test -c -fuzz . -o "$FUZZBUILD/$binary" "./$dir"
	"$FUZZBUILD/$binary" -test.list '^Fuzz' | sed "s|^|$dir $binary |"
done > "$FUZZBUILD/targets"

# Files of models go to memory if there is room.
if [ "$(df -Pk /dev/shm 2>/dev/null | awk 'END {print $4 + 0}')" -gt 1000000 ]; then
	export TMPDIR=/dev/shm
fi

# Before Go 1.27 the end of the time may come out as a failure (go.dev/issue/75804).
# That alone, without an input that failed, is none.
xargs -P "$2" -n 3 sh -c '
	cd "$0"
	log=$("$FUZZBUILD/$1" -test.run "^$" -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 10x \
		-test.parallel 1 -test.fuzzcachedir "$FUZZBUILD/corpus/$0" 2>&1) || {
		rest=$(echo "$log" | grep -v "^fuzz: " | sed "s/ (.*//" | tr -d "\n")
		[ "$rest" = "--- FAIL: $2    context deadline exceededFAIL" ] || { echo "$0 $2:"; echo "$log"; exit 1; }
	}
	echo "$0 $2: $(echo "$log" | grep execs: | tail -n 1)"
' < "$FUZZBUILD/targets"
