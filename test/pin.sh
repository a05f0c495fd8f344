#!/bin/sh
# Moves the pinned ONNX Runtime to another version, and remakes the tables that are measured with it:
#
#	test/pin.sh VERSION
#
# Then it lists what people must decide: sentences and names that tell the old version, and what was measured before.
# make test says whether what is written still runs.
set -eu
cd "$(dirname "$0")/.."
new=$1
old=$(sed -n 's/^onnxruntime==//p' test/oracle/requirements.txt)
short() { echo "$1" | cut -d. -f1,2; }
[ "$new" != "$old" ] || { echo "onnxruntime $new is the pinned version"; exit 1; }

echo "== onnxruntime $old -> $new"
sed -i "s/^onnxruntime==.*/onnxruntime==$new/" test/oracle/requirements.txt
make .venv/ready
echo '== opsets and IR versions'
.venv/bin/python test/oracle/loads.py
echo '== tables: kernels, fusion, types'
make kernels fusion optypes
sed -i "s/\"ONNX Runtime $(short "$old")\( on a CPU\)\{0,1\}\"/\"ONNX Runtime $(short "$new")\1\"/" internal/target/target.go
go test ./internal/target -run TestTargetsDocument -update
go test ./onnxq/inspect -run TestHazardsDocument -update
echo '== what changed'
git --no-pager diff --stat
echo "== left for people: what tells the old version. costs_ort.txt and the tables of docs keep theirs until 'make costs' and the targets of these tables run"
git --no-pager grep -n "$(short "$old" | sed 's/\./\\./')" -- '*.go' '*.py' '*.txt' '*.md' ':!docs/log' ':!CHANGELOG.md' ':!*_test.go'
