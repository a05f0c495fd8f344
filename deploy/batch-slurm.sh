#!/bin/sh
# onnxquant batch as an array of Slurm, on a shared file system: sbatch deploy/batch-slurm.sh jobs.jsonl out-folder --bits 4
# docs/batch.md explains it. A task that was killed goes on from its manifest: --requeue, or the same command again.
#SBATCH --job-name=onnxquant-batch
#SBATCH --array=0-3
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=onnxquant-batch-%A_%a.log
set -eu

if [ $# -lt 2 ]; then
	echo "usage: sbatch $0 JOBS OUTDIR [FLAGS OF A CONVERSION]" >&2
	exit 2
fi
jobs=$1 out=$2
shift 2
exec onnxquant batch --gate sound --jobs "${SLURM_CPUS_PER_TASK:-1}" \
	--shard "$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))/$SLURM_ARRAY_TASK_COUNT" \
	"$jobs" "$out" -- "$@"
