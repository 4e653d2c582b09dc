#!/bin/sh
# Prints its arguments as a title: each word with a capital first letter.
set -eu

capital() {
  first=$(printf '%s\n' "$1" | cut -c 2)
  rest=$(printf '%s\n' "$1" | cut -c 2-)
  printf '%s%s' "$(printf '%s' "$first" | tr '[:lower:]' '[:upper:]')" "$rest"
}

line=''
for word in "$@"; do
  line="$line${line:+ }$(capital "$word")"
done
printf '%s\n' "$line"
