#!/bin/bash
#SBATCH --job-name=onnxquant
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --requeue
#
# Finds calibrated codes in the tasks of an array, then writes the model. docs/shards.md explains it.
#
#   shards=$(sbatch --parsable --array=0-7 slurm.sh ids.npz in.onnx out.onnx)
#   sbatch --dependency=afterok:$shards slurm.sh ids.npz in.onnx out.onnx
#
# The files are in a folder that all nodes share, on a file system that locks files. Flags of onnxquant may come before
# the three names; they must be the same in both commands. A task that was killed is run again with the same number:
#
#   sbatch --array=3 --export=ALL,SHARDS=8 slurm.sh ids.npz in.onnx out.onnx
set -eu
names=("${@: -3}")
flags=("${@:1:$#-3}" --algorithm gptq --memory "${MEMORY:-8GiB}" --calib "${names[0]}" --calib-store "${names[2]}.codes")
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
	flags+=(--quiet --calib-shard "$SLURM_ARRAY_TASK_ID/${SHARDS:-$SLURM_ARRAY_TASK_COUNT}")
fi
exec onnxquant "${flags[@]}" "${names[1]}" "${names[2]}"
