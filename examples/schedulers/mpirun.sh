#!/bin/bash
# mpirun starts every rank: OpenMPI, MPICH or Intel MPI. The program needs neither MPI nor a launcher of ours.
#
#   NUM_RANKS=2 examples/schedulers/mpirun.sh PROGRAM ARGUMENTS
#
# On several hosts, name rank 0's host, as mpirun does not tell it to the ranks (inside a SLURM job it is found):
#   OpenMPI:   mpirun --host node-a:2,node-b:2 -x MASTER_ADDR=node-a PROGRAM
#   MPICH:     mpirun -hosts node-a:2,node-b:2 -genv MASTER_ADDR node-a -genv MASTER_PORT 29500 PROGRAM
#
# Ranks are not bound to one core each, as a rank's threads use all cores that LibTorch finds.
exec "${MPIRUN:-mpirun}" -n "${NUM_RANKS:-2}" --bind-to none "$@"
