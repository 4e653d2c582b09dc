#!/bin/sh
# The tests of title.sh. Exit code 0: all passed; 1: some failed.
set -eu
cd -- "$(dirname -- "$0")"

failed=0
check() { # <expected> <words...>
  expected=$1
  shift
  got=$(sh title.sh "$@")
  if [ "$got" = "$expected" ]; then
    printf 'ok    %s\n' "$expected"
  else
    printf 'FAIL  expected "%s", got "%s"\n' "$expected" "$got"
    failed=1
  fi
}

check 'Night Market' night market
check 'The Repair Cafe' the repair cafe
check 'A' a
exit "$failed"
