#!/usr/bin/env bash
# tests/mpirun.sh RANKS COMMAND...: a job on this machine, with more ranks than cores if need be, as
# any user.
set -euo pipefail
ranks=$1
shift
exec mpirun --oversubscribe --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1 \
  --mca orte_abort_print_stack 0 -n "$ranks" "$@"
