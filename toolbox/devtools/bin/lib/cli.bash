# Errors and the parsing of calls, shared by the tools of this toolbox.
#
# It must never run a command that comes from an argument, and never guess what a wrong call meant: a wrong call ends with
# exit code 2, a failed action with 1. Each message says what was wrong, where, and what to do next.
# shellcheck shell=bash

declare -gA OPT=() # option name -> value, set by parse_call
declare -ga POS=() # the other arguments, set by parse_call

# complain <exit code> <what was wrong> [<what to do next>]
complain() {
  printf '%s: %s\n' "$PROGRAM" "$2" >&2
  [[ -z ${3:-} ]] || printf 'next: %s\n' "$3" >&2
  exit "$1"
}
fail() { complain 1 "$@"; }
wrong_call() { complain 2 "$1" "${2:-call \`$PROGRAM help\`}"; }

# The number of single-character edits between two words. Words are cut, because a caller may send a megabyte.
edit_distance() {
  local a=${1:0:40} b=${2:0:40} i j cost best
  local -a row=() next=()
  for ((j = 0; j <= ${#b}; j++)); do row[j]=$j; done
  for ((i = 1; i <= ${#a}; i++)); do
    next=("$i")
    for ((j = 1; j <= ${#b}; j++)); do
      cost=1
      [[ ${a:i-1:1} != "${b:j-1:1}" ]] || cost=0
      best=$((row[j - 1] + cost))
      ((row[j] + 1 >= best)) || best=$((row[j] + 1))
      ((next[j - 1] + 1 >= best)) || best=$((next[j - 1] + 1))
      next[j]=$best
    done
    row=("${next[@]}")
  done
  printf '%s' "${row[${#b}]}"
}

# nearest <word> <known words...>: the known word with the fewest edits.
nearest() {
  local word=$1 candidate distance least=1000 found=''
  shift
  for candidate in "$@"; do
    distance=$(edit_distance "$word" "$candidate")
    ((distance >= least)) || { least=$distance found=$candidate; }
  done
  printf '%s' "$found"
}

unknown_option() { # <option as written> <known options...>
  local written=$1
  shift
  (($#)) || wrong_call "unknown option ${written@Q}: \`$SUBCOMMAND\` takes no options"
  wrong_call "unknown option ${written@Q} of \`$SUBCOMMAND\`; the nearest known one is --$(nearest "${written##-}" "$@")"
}

unknown_subcommand() { # <word> <known subcommands...>
  local word=$1
  shift
  [[ $word != *[[:space:]]* ]] ||
    wrong_call "unknown subcommand ${word@Q}" 'give each word as its own string of `args`, such as ["clone", "<url>"]'
  wrong_call "unknown subcommand ${word@Q}; the nearest known one is \`$(nearest "$word" "$@")\`"
}

# parse_call <known options, separated by spaces> <most positionals> <arguments...> fills OPT and POS. Every option takes a
# value, as `--name value` or `--name=value`. `--` ends the options.
parse_call() {
  local -a known
  local most=$2 name candidate ok value
  read -ra known <<<"$1"
  shift 2
  OPT=() POS=()
  while (($#)); do
    case $1 in
      --)
        shift
        POS+=("$@")
        break
        ;;
      -?*)
        name=${1%%=*} ok=''
        for candidate in "${known[@]}"; do [[ $name != "--$candidate" ]] || ok=1; done
        [[ $ok ]] || unknown_option "$name" "${known[@]}"
        name=${name#--}
        [[ -z ${OPT[$name]+set} ]] || wrong_call "option --$name is given twice"
        if [[ $1 == *=* ]]; then
          value=${1#*=}
          shift
        else
          (($# > 1)) || wrong_call "option --$name needs a value"
          value=$2
          shift 2
        fi
        [[ -n $value || $name == body ]] || wrong_call "the value of --$name is empty"
        OPT[$name]=$value
        ;;
      *)
        POS+=("$1")
        shift
        ;;
    esac
  done
  ((${#POS[@]} <= most)) || wrong_call "unexpected argument ${POS[most]@Q} of \`$SUBCOMMAND\`"
}

need_option() { # <name>
  [[ -n ${OPT[$1]:-} ]] || wrong_call "\`$SUBCOMMAND\` needs --$1 <value>"
}
