# The directory of clones of an agent: names, locks, and the steps that both tools share. Needs cli.bash and git-common.bash.
#
# It must never touch anything outside BASE, and never leave half a clone: a clone grows under `.tmp-<name>` and is renamed.
# shellcheck shell=bash

LOCK_SECONDS=${DEVTOOLS_LOCK_SECONDS:-60}

open_base() {
  local place
  for place in "$BASE" "$BASE/.locks"; do
    [[ ! -L $place ]] || fail "$place is a symbolic link, so it is refused" 'remove the link'
    mkdir -p -- "$place" 2>/dev/null || fail "cannot make $place" 'check the free space and your write rules'
  done
}

clone_names() {
  local entry
  for entry in "$BASE"/*; do
    [[ ! -d $entry || -L $entry ]] || printf '%s\n' "${entry##*/}"
  done
}

# pick_clone [<name>]: sets NAME. Without a name, the only clone is meant.
pick_clone() {
  local -a names
  if (($#)); then
    check_name "$1"
    NAME=$1
    return
  fi
  mapfile -t names < <(clone_names)
  case ${#names[@]} in
    0) fail "there is no clone in $BASE" "call \`$PROGRAM clone\` first" ;;
    1) NAME=${names[0]} && check_name "$NAME" ;;
    *) wrong_call "there are several clones: ${names[*]}" 'name one of them' ;;
  esac
}

# One call at a time works on a clone. The kernel frees the lock when the last process of a killed call ends.
lock_clone() { # <name>
  local file=$BASE/.locks/$1
  open_base
  [[ ! -L $file && ! -d $file ]] || fail "$file is not a plain file, so it is refused" 'remove it'
  exec {LOCK_FD}>>"$file"
  flock -w "$LOCK_SECONDS" "$LOCK_FD" || fail "another call is at work on $1" 'call again when it has ended'
}

check_clone() { # <directory>
  [[ ! -L $1 ]] || { REASON='it is a symbolic link'; return 1; }
  [[ -d $1 ]] || { REASON='it is not a directory'; return 1; }
  [[ -e $1/.git || -L $1/.git ]] || { REASON='it has no .git'; return 1; }
  check_git_dir "$1/.git" || return 1
  check_submodules "$1"
}

# Git starts another git inside a populated submodule, under a config that nobody checked.
check_submodules() {
  local line
  while IFS= read -r -d '' line; do
    [[ $line == 160000\ * ]] || continue
    line=${line#*$'\t'}
    [[ ! -e $1/$line/.git ]] || { REASON="$line is a repository of its own inside it"; return 1; }
  done < <(DIR=$1 && g ls-files --stage -z)
}

# open_clone [<name>]: picks, locks and checks. Sets NAME and DIR.
open_clone() {
  pick_clone "$@"
  DIR=$BASE/$NAME
  [[ -e $DIR || -L $DIR ]] || fail "there is no clone ${NAME@Q} in $BASE" "call \`$PROGRAM list\` for the names, or clone it"
  lock_clone "$NAME"
  check_clone "$DIR" || fail "the clone $NAME is refused: $REASON" "undo that, or remove the clone and clone it again"
  # A killed git leaves lock files. No git of this tool runs longer than ten minutes.
  find "$DIR/.git" -name '*.lock' -type f -mmin +10 -delete 2>/dev/null || true
}

# Local git. The directories are named, so a broken clone never makes git look further up. It has no token and no transport.
g() { git -C "$DIR" --git-dir="$DIR/.git" --work-tree="$DIR" "$@" </dev/null; }
net_g() { net -C "$DIR" --git-dir="$DIR/.git" --work-tree="$DIR" "$@"; }

current_branch() {
  BRANCH=$(g symbolic-ref --quiet --short HEAD) ||
    fail "$NAME is on no branch" "call \`$PROGRAM branch $NAME --create <name>\`"
}

check_branch() { # <branch name>
  [[ $1 != HEAD && $(git check-ref-format --branch "$1" 2>/dev/null) == "$1" ]] ||
    wrong_call "${1@Q} is not a valid branch name" 'use letters, digits, `-`, `_`, `.` and `/`'
}

# clone_url <name> <url to keep> [<branch>]: needs read_url and the lock of the name.
clone_url() {
  local tmp=$BASE/.tmp-$1 left fd
  local -a how=()
  # Leftovers of killed calls. Whoever clones a name holds its lock, so a free lock means that nobody is at work.
  for left in "$BASE"/.tmp-*; do
    [[ -e $left || -L $left ]] || continue
    [[ ! -L $BASE/.locks/${left##*/.tmp-} ]] || continue
    if [[ $left == "$tmp" ]]; then
      rm -rf -- "$left"
    elif { exec {fd}>>"$BASE/.locks/${left##*/.tmp-}"; } 2>/dev/null; then
      ! flock -n "$fd" || rm -rf -- "$left"
      exec {fd}>&-
    fi
  done
  [[ $URL_KIND != file ]] || how+=("--upload-pack=$SERVE upload-pack")
  [[ -z ${3:-} ]] || how+=("--branch=$3")
  if ! net clone --quiet --template= --no-local --no-recurse-submodules --origin=origin "${how[@]}" -- "$URL" "$tmp"; then
    rm -rf -- "$tmp"
    net_failed "cloning ${2@Q} failed"
  fi
  # The URL as it was given, because the kind of access may change later.
  git config --file "$tmp/.git/config" remote.origin.url "$2"
  [[ ! -e $BASE/$1 && ! -L $BASE/$1 ]] && mv -T -- "$tmp" "$BASE/$1" || fail "$BASE/$1 appeared meanwhile" 'choose another name'
}

read_origin() { # sets URL and its kin from the clone; the URL is judged again at each use
  local url
  url=$(git config --file "$DIR/.git/config" --no-includes remote.origin.url) ||
    fail "$NAME has no remote \`origin\`" 'remove the clone and clone it again'
  read_url "$url"
}

fetch_origin() {
  local -a how=()
  [[ $URL_KIND != file ]] || how+=("--upload-pack=$SERVE upload-pack")
  net_g fetch --quiet --prune --no-recurse-submodules "${how[@]}" -- "$URL" '+refs/heads/*:refs/remotes/origin/*' ||
    net_failed "fetching for $NAME failed"
}

pull_clone() {
  local before after conflicts remote
  current_branch
  fetch_origin
  remote=refs/remotes/origin/$BRANCH
  if ! g rev-parse --verify --quiet "$remote" >/dev/null; then
    printf 'fetched; the branch %s is not on the remote yet, so there is nothing to merge\n' "$BRANCH"
    return
  fi
  before=$(g rev-parse --verify --quiet HEAD || true)
  if ! g merge --quiet --no-edit --no-verify --no-verify-signatures "$remote" >"$SCRATCH/err" 2>&1; then
    conflicts=$(g diff --no-ext-diff --no-textconv --name-only --diff-filter=U)
    if [[ $conflicts ]]; then
      g merge --abort
      printf 'conflicting files:\n%s\n' "$conflicts" >&2
      fail "your commits on $BRANCH and those of the remote change the same lines; the clone is as before" "$CONFLICT_HINT"
    fi
    show_err
    fail "pulling $NAME failed" 'commit or undo your changes of the files above, then pull again'
  fi
  after=$(g rev-parse --verify --quiet HEAD)
  if [[ $before == "$after" ]]; then
    printf 'already up to date: %s at %s\n' "$BRANCH" "${after:0:10}"
  else
    printf 'pulled %s: %s -> %s\n' "$BRANCH" "${before:0:10}" "${after:0:10}"
  fi
}

commit_clone() { # <message>
  local files path
  [[ $1 == *[![:space:]]* ]] || wrong_call 'the message is empty'
  g add --all >"$SCRATCH/err" 2>&1 || { show_err; fail "staging the files of $NAME failed" 'read the lines of git above'; }
  if ! check_submodules "$DIR"; then
    path=${REASON%% is a repository*}
    g rm --quiet --cached --force -- "$path" || true
    fail "nothing was committed: $REASON" "move $path out of the clone, or remove its .git"
  fi
  if g diff --cached --quiet --no-ext-diff --no-textconv --ignore-submodules=none; then
    printf 'nothing to commit: %s has no changes\n' "$NAME"
    return
  fi
  files=$(g diff --cached --name-only -z --no-ext-diff --no-textconv --ignore-submodules=none | tr -cd '\0' | wc -c)
  g commit --quiet --no-verify --no-gpg-sign --cleanup=whitespace --message="$1" >"$SCRATCH/err" 2>&1 ||
    { show_err; fail "the commit in $NAME failed" 'read the lines of git above'; }
  printf 'committed %s on %s: %d file(s)\n' "$(g rev-parse --short HEAD)" "$(g symbolic-ref --quiet --short HEAD || echo 'no branch')" "$files"
}

push_clone() { # <branch>: needs read_url and need_push_access
  local sha
  local -a how=()
  sha=$(g rev-parse --verify --quiet "refs/heads/$1^{commit}") ||
    fail "$NAME has no branch ${1@Q} with a commit" "call \`$PROGRAM commit\` first, and check the name of the branch"
  [[ $URL_KIND != file ]] || how+=("--receive-pack=$SERVE receive-pack")
  if ! net_g push --quiet --no-verify --no-signed --no-recurse-submodules "${how[@]}" -- "$URL" "$sha:refs/heads/$1"; then
    case $(<"$SCRATCH/err") in
      *non-fast-forward* | *'fetch first'* | *'fetch-first'*)
        fail "the remote has commits on $1 that $NAME lacks; nothing was pushed" "call \`$PROGRAM pull $NAME\`, then push again" ;;
    esac
    net_failed "pushing $1 of $NAME failed"
  fi
  g update-ref "refs/remotes/origin/$1" "$sha"
  g config "branch.$1.remote" origin
  g config "branch.$1.merge" "refs/heads/$1"
  printf 'pushed %s at %s\n' "$1" "${sha:0:10}"
}

status_clone() { g status --short --branch --ignore-submodules=all; }

list_clones() {
  local name head changes
  # The list takes no locks, so git must not refresh an index that another call works on.
  export GIT_OPTIONAL_LOCKS=0
  while IFS= read -r name; do
    NAME=$name DIR=$BASE/$name
    if ! check_clone "$DIR"; then
      printf '%s\trefused: %s\n' "$name" "$REASON"
      continue
    fi
    changes=$(status_clone)
    head=${changes%%$'\n'*}
    changes=$(printf '%s' "${changes:${#head}}" | grep -c . || true)
    printf '%s\t%s\t%s\n' "$name" "${head#\#\# }" "$([[ $changes == 0 ]] && echo clean || echo "$changes changed")"
  done < <(clone_names)
}
