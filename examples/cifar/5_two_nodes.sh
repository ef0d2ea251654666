#!/bin/bash
# Step 5: step 4 on two nodes, with the same program. Run this on each node, with the same address:
#
#   examples/cifar/5_two_nodes.sh 0 HOST     # on HOST, node 0
#   examples/cifar/5_two_nodes.sh 1 HOST     # on the other node
#
# Each starts two ranks; all four train together. Both nodes must see the folder runs/cifar, as all ranks read the checkpoint that
# rank 0 writes. To try it on one machine, use 127.0.0.1 and run both commands in two terminals.
set -eu
if (($# < 2)); then
  echo "usage: $0 NODE_RANK HOST [EPOCHS [FOLDER]]; NODE_RANK is 0 on HOST, 1 on the other node" >&2
  exit 2
fi
node_rank=$1
host=$2
cd "$(dirname "$0")/../.."
exec build/bin/cohort run --nnodes 2 --node-rank "$node_rank" --nproc-per-node 2 --master-addr "$host" --master-port 29500 \
  build/bin/examples/cifar_long_run data "${3:-10}" "${4:-runs/cifar}"
