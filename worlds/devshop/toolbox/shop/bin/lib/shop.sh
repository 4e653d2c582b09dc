# What the programs of this toolbox share: names, places, and git as it must run on repositories that nobody has checked.
#
# A test or a coding agent can write anything into the .git of a working copy. So no hook, filter or helper that a repository names may
# run here, and no word of a call may become an option. The rules are those of toolbox/devtools in short.
# shellcheck shell=sh

fail() { # <what was wrong> <what to do next>
  printf '%s: %s\nnext: %s\n' "${0##*/}" "$1" "$2" >&2
  exit 1
}

# take <number of words> <words...>: the first word is the `--` of the toolbox.
take() {
  [ "${2-}" = -- ] && [ "$#" -eq "$(($1 + 2))" ] || fail 'wrong arguments' 'call it as a tool'
}

place() { # <repo> <branch>: checks both and sets REMOTE and COPY
  case $1 in
    '' | [!a-z]* | *[!a-z0-9-]*) fail "\`$1\` is no name of a repository" 'use a-z, 0-9 and -, with a letter first' ;;
  esac
  case $2 in
    '' | [!a-z]* | *[!a-z0-9-]*) fail "\`$2\` is no name of a branch" 'use a-z, 0-9 and -, with a letter first' ;;
    main) fail 'work on main is not allowed' 'use a branch of its own, such as fix-title' ;;
  esac
  [ -d "${HOME:-}" ] && [ -d "${AGENT_WORKSPACE:-}" ] || fail 'HOME or AGENT_WORKSPACE is no directory' 'tell the operator'
  REMOTE=$AGENT_WORKSPACE/remotes/$1.git
  COPY=$HOME/artifact-repo/$1
}

harden() {
  # Ours, and no others: neither files of the machine nor variables of the caller choose what git runs.
  export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_ATTR_NOSYSTEM=1 GIT_NO_LAZY_FETCH=1 LC_ALL=C
  export GIT_AUTHOR_NAME="$AGENT_ID" GIT_AUTHOR_EMAIL="$AGENT_ID@agents.invalid"
  export GIT_COMMITTER_NAME="$AGENT_ID" GIT_COMMITTER_EMAIL="$AGENT_ID@agents.invalid"
  GIT_CONFIG_COUNT=0
  for pair in core.hooksPath=/dev/null core.fsmonitor=false core.attributesFile=/dev/null core.alternateRefsCommand=true \
    core.sshCommand=false core.pager=cat credential.helper= commit.gpgSign=false push.gpgSign=false gc.auto=0 maintenance.auto=false \
    submodule.recurse=false push.recurseSubmodules=no transfer.fsckObjects=true 'safe.directory=*' init.defaultBranch=main; do
    export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=${pair%%=*}" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=${pair#*=}"
    GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
  done
  # Only repositories at a path.
  export GIT_CONFIG_COUNT GIT_ALLOW_PROTOCOL=file
  # The other end of a path is a git of its own, which drops the settings above.
  SERVE="git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true -c gc.auto=0 \
-c receive.autogc=false -c receive.denyNonFastForwards=true -c receive.denyDeletes=true -c 'safe.directory=*'"
}

# The keys that git itself writes here, and no others: a filter or a textconv is a program, too.
check_git_dir() { # <git directory> <its name>
  [ -d "$1" ] && [ ! -L "$1" ] && [ -f "$1/config" ] && [ ! -L "$1/config" ] || fail "$2 is not a plain repository" 'tell the operator'
  for entry in commondir gitdir config.worktree objects/info/alternates; do
    [ ! -e "$1/$entry" ] || fail "$2 has a file $entry, which leads to another place" 'tell the operator'
  done
  [ -z "$(find "$1" -type l)" ] || fail "$2 has symbolic links" 'tell the operator'
  keys=$(git config --file "$1/config" --no-includes --list --name-only) || fail "the config of $2 cannot be read" 'tell the operator'
  allowed='core\.(repositoryformatversion|filemode|bare|logallrefupdates)|remote\.origin\.(url|fetch)|branch\.[a-z0-9-]+\.(remote|merge)'
  strange=$(printf '%s\n' "$keys" | grep -E -v "^($allowed)\$" || true)
  [ -z "$strange" ] || fail "the config of $2 sets $strange, which is not allowed here" 'tell the operator'
}

# Git in the working copy. The directories are named, so that a broken one never makes git look further up.
g() { git -C "$COPY" --git-dir="$COPY/.git" --work-tree="$COPY" "$@" </dev/null; }
