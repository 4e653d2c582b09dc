# The wrapper of coding agents: each program gets the task whole, and asks nobody.

mkdir -p "$AREA/agents-bin"
for program in cursor-agent claude codex gemini; do
  cat >"$AREA/agents-bin/$program" <<'TEXT'
#!/usr/bin/env bash
printf 'argv:'
printf ' <%s>' "${0##*/}" "$@"
printf '\nstdin: <%s>\n' "$(cat)"
TEXT
  chmod +x "$AREA/agents-bin/$program"
done
agent() { # <agent> <task>
  CODE=0
  (cd "$(home alice)" && env -i PATH="${AGENT_PATH-$AREA/agents-bin:$PATH}" HOME="$(home alice)" "$ROOT/bin/run-coding-agent" "$1" <<<"$2") \
    >"$OUT/stdout" 2>"$OUT/stderr" || CODE=$?
  STDOUT=$(cat "$OUT/stdout") STDERR=$(cat "$OUT/stderr")
}
HOSTILE='--force; $(touch pwned) "quoted"'
expect 'cursor gets its task as one word after --' 0 '<cursor-agent> <--print> <--force> <--output-format> <stream-json> <--> <--force; \$\(touch pwned\) "quoted">' agent cursor "$HOSTILE"
expect 'claude gets its task on standard input' 0 'stdin: <--force; \$\(touch pwned\) "quoted">' agent claude "$HOSTILE"
expect 'codex gets its task on standard input' 0 '<codex> <exec> <--json>.*stdin: <--force;' agent codex "$HOSTILE"
expect 'gemini gets its task as the value of an option' 0 '<--prompt> <--force; \$\(touch pwned\) "quoted">' agent gemini "$HOSTILE"
check 'nothing of the task ran' absent "$(home alice)/pwned"
expect 'an empty task is refused' 2 'the task is empty' agent cursor '  '
expect 'an unknown agent is refused' 2 'is not a coding agent' agent --help x
AGENT_PATH=/usr/bin:/bin
expect 'a missing program is named' 2 'none of these programs here: (cursor-agent agent|codex)' agent codex x
unset AGENT_PATH
