#!/bin/bash
# A script on a Slurm cluster: sbatch cluster/slurm.sh script.py [its arguments]
# What stands here after #SBATCH is overruled by sbatch's own words: --nodes=8.

#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4     # workers of a node: one a GPU
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --distribution=block    # fills node after node: the workers count on it
#SBATCH --time=02:00:00         # a worker that hangs is ended then, with all others
#SBATCH --output=%x-%j.log

set -euo pipefail
if [[ ! -f "${1-}" ]]; then
  echo "usage: sbatch $0 script.py [arguments]: '${1-}' is no file" >&2
  exit 2
fi

# Here one process drives one device.
export MANYGPU_DEVICES="${MANYGPU_DEVICES:-1}" PYTHONUNBUFFERED=1

# When one worker fails, all are ended. Each line shows who said it. Since Slurm 22.05
# a step no longer takes its --cpus-per-task from the job.
exec srun --kill-on-bad-exit=1 --label --distribution=block \
  --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" "${PYTHON:-python3}" "$@"
