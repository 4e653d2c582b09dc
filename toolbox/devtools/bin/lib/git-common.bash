# Git as the tools of this toolbox run it: on repositories, servers and arguments that nobody vouches for.
#
# It must never run a program that a repository names (hooks, filters, textconv, credential helpers, ssh commands), never
# read or write through a symbolic link out of the directory of clones, and never let the token reach a file, an argument
# list, the output, or a host that is not GITHUB_HOST.
# shellcheck shell=bash

# Settings for every git process, also for those that `gh` starts. They are the second wall. The first is check_config.
HARDENING=(
  core.hooksPath=/dev/null core.fsmonitor=false core.pager=cat core.editor=true core.attributesFile=/dev/null
  core.alternateRefsCommand=: core.quotePath=false core.sshCommand=false core.askPass=false credential.helper=
  gpg.program=false commit.gpgSign=false tag.gpgSign=false push.gpgSign=false log.showSignature=false merge.verifySignatures=false
  submodule.recurse=false fetch.recurseSubmodules=false push.recurseSubmodules=no diff.ignoreSubmodules=all
  status.submoduleSummary=false gc.auto=0 maintenance.auto=false rerere.enabled=false color.ui=false init.defaultBranch=main
  protocol.ext.allow=never http.followRedirects=false transfer.bundleURI=false transfer.fsckObjects=true
  # Old, well-known repositories have these three flaws, and they do no harm.
  fetch.fsck.zeroPaddedFilemode=ignore fetch.fsck.badTimezone=ignore fetch.fsck.missingSpaceBeforeDate=ignore
  # Another agent may own a repository under another user. check_bare judges it instead of its owner's name.
  'safe.directory=*'
)

# A repository at a path is served by a child that drops the settings above, and would run the hooks of that repository with
# the rights of this agent. Git passes these two lines to a shell; they hold no word from outside.
SERVE="git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=: -c gc.auto=0 \
-c maintenance.auto=false -c receive.autogc=false -c receive.denyNonFastForwards=true -c receive.denyDeletes=true \
-c transfer.fsckObjects=true -c 'safe.directory=*'"

# The keys that git itself and `gh` write into a repository, and no others. A list of forbidden keys would have a hole with
# each new version of git; a list of allowed keys has none. Names of remotes are plain words, so none can pose as a URL.
ALLOWED_KEYS='^(core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|sharedrepository|autocrlf|eol)'
ALLOWED_KEYS+='|extensions\.(objectformat|refstorage)|user\.(name|email)|receive\.deny(nonfastforwards|deletes)|pull\.(rebase|ff)'
ALLOWED_KEYS+='|remote\.[A-Za-z0-9][A-Za-z0-9._-]*\.(url|fetch|gh-resolved)|branch\..+\.(remote|merge|rebase|pushremote|gh-merge-base))$'

# begin <directory of the clones>: environment, token, scratch directory. Call it once, before anything else.
begin() {
  local variable pair i=0
  [[ -d ${HOME:-} ]] || fail 'HOME is not a directory' 'tell the operator: the sandbox gave no home'
  [[ -d ${AGENT_WORKSPACE:-} ]] || fail 'AGENT_WORKSPACE is not a directory' 'tell the operator: the sandbox gave no workspace'
  [[ ${AGENT_ID:-} =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail 'AGENT_ID is missing or not a plain name' 'tell the operator'
  WORKSPACE=$(cd -P -- "$AGENT_WORKSPACE" && pwd)
  BASE=$(cd -P -- "$HOME" && pwd)/$1

  # The token lives in a shell variable. Only the command that needs it gets it, so local git and its children never do.
  TOKEN=${GITHUB_TOKEN:-${GH_TOKEN:-}}
  unset GITHUB_TOKEN GH_TOKEN GH_ENTERPRISE_TOKEN GITHUB_ENTERPRISE_TOKEN SSH_ASKPASS SSH_AUTH_SOCK DISPLAY
  [[ $TOKEN != *[[:space:][:cntrl:]]* ]] || fail 'the token in GITHUB_TOKEN or GH_TOKEN holds a space or a line end' 'tell the operator'
  GITHUB_HOST=${GITHUB_HOST:-github.com}
  GITHUB_HOST=${GITHUB_HOST,,}
  [[ $GITHUB_HOST =~ ^[a-z0-9][a-z0-9.-]*(:[0-9]+)?$ ]] || fail 'GITHUB_HOST is not a host name' 'tell the operator'
  SSH_KEY=${GITHUB_SSH_KEY:-/etc/github-ssh/id_ed25519}

  # GIT_SSL_CAINFO stays: it names the operator's certificates and can only come from the operator.
  while read -r variable; do
    [[ $variable == GIT_SSL_CAINFO ]] || unset "$variable"
  done < <(compgen -A export GIT_)
  for pair in "${HARDENING[@]}"; do
    export "GIT_CONFIG_KEY_$i=${pair%%=*}" "GIT_CONFIG_VALUE_$i=${pair#*=}"
    i=$((i + 1))
  done
  export GIT_CONFIG_COUNT=$i GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_EDITOR=true
  export GIT_NO_LAZY_FETCH=1 GIT_LITERAL_PATHSPECS=1 GIT_ATTR_NOSYSTEM=1 GIT_ALLOW_PROTOCOL=none PAGER=cat LC_ALL=C
  export GIT_AUTHOR_NAME=$AGENT_ID GIT_AUTHOR_EMAIL=$AGENT_ID@agents.invalid
  export GIT_COMMITTER_NAME=$AGENT_ID GIT_COMMITTER_EMAIL=$AGENT_ID@agents.invalid
  export GITHUB_HOST GIT_ASKPASS=$BIN/github-askpass

  # An empty home: no .netrc, no .config of the agent chooses an account. And git starts outside any repository.
  SCRATCH=$(mktemp -d) || fail 'no temporary directory' 'check the free space of TMPDIR'
  trap 'rm -rf -- "$SCRATCH"' EXIT
  export HOME=$SCRATCH XDG_CONFIG_HOME=$SCRATCH XDG_DATA_HOME=$SCRATCH XDG_STATE_HOME=$SCRATCH XDG_CACHE_HOME=$SCRATCH
  cd -- "$SCRATCH" || exit 1
  : >"$SCRATCH/err"
}

quote() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# Called when a URL needs ssh. GIT_SSH_COMMAND goes through a shell, hence the quotes.
use_ssh_key() {
  local strict=accept-new known
  known=$(dirname -- "$SSH_KEY")/known_hosts
  [[ ! -r $known ]] || strict=yes
  GIT_SSH_COMMAND="ssh -F /dev/null -o BatchMode=yes -o IdentitiesOnly=yes -o ForwardAgent=no -o LogLevel=ERROR \
-o StrictHostKeyChecking=$strict -o $(quote "GlobalKnownHostsFile=\"$known\" /etc/ssh/ssh_known_hosts") \
-o $(quote "UserKnownHostsFile=\"$SCRATCH/known_hosts\"") -i $(quote "$SSH_KEY")"
  export GIT_SSH_COMMAND
}

# read_url <url>: judges it and sets URL (what git gets), URL_KIND (https, ssh or file), URL_HOST, URL_PATH and AUTH
# (token, ssh, public or local). Everything that is not exactly one of the four forms is refused.
read_url() {
  local url=$1 name='[A-Za-z0-9][A-Za-z0-9._-]*' host='[A-Za-z0-9][A-Za-z0-9.-]*' path='[A-Za-z0-9_.~+%/-]+'
  local forms="use https://<host>/<owner>/<name>, ssh://git@<host>/<owner>/<name>, git@<host>:<owner>/<name>, or the path of a bare repository in the workspace"
  [[ $url != -* ]] || wrong_call "the URL ${url@Q} starts with \`-\`" "$forms"
  [[ ! $url =~ ^https://[^/]*@ ]] ||
    wrong_call 'the URL holds a user name or a token before `@`, which would be written to disk' 'leave it out; authentication is detected'
  if [[ $url =~ ^https://($host(:[0-9]+)?)/($path)$ ]]; then
    URL_KIND=https URL_HOST=${BASH_REMATCH[1],,} URL_PATH=${BASH_REMATCH[3]}
    URL=https://$URL_HOST/$URL_PATH
  elif [[ $url =~ ^ssh://($name@)?($host)(:[0-9]+)?/($path)$ ]]; then
    URL_KIND=ssh URL_HOST=${BASH_REMATCH[2],,} URL_PATH=${BASH_REMATCH[4]} URL=$url
  elif [[ $url =~ ^($name)@($host):([A-Za-z0-9_.~/]$path)$ ]]; then
    URL_KIND=ssh URL_HOST=${BASH_REMATCH[2],,} URL_PATH=${BASH_REMATCH[3]#/} URL=$url
  elif [[ $url == /* ]]; then
    URL=$(realpath -e -- "$url" 2>/dev/null) || fail "there is no repository at ${url@Q}" 'check the path'
    [[ $URL == "$WORKSPACE"/* ]] || fail "${url@Q} is outside the workspace" "$forms"
    check_bare "$URL" || fail "${url@Q} is refused: $REASON" 'name a bare repository in the workspace'
    URL_KIND=file URL_HOST='' URL_PATH=$URL AUTH=local
    return
  else
    wrong_call "the URL ${url@Q} is refused" "$forms"
  fi
  [[ /$URL_PATH/ != */../* ]] || wrong_call "the URL ${url@Q} has a \`..\` in its path" "$forms"
  AUTH=public
  if [[ $URL_KIND == ssh ]]; then
    if [[ $URL_HOST == "${GITHUB_HOST%%:*}" && ($TOKEN || ! -r $SSH_KEY) ]]; then
      URL_KIND=https URL_HOST=$GITHUB_HOST URL=https://$GITHUB_HOST/$URL_PATH
    else
      [[ -r $SSH_KEY ]] || fail "no SSH key for $URL_HOST on this machine" 'use the https:// URL; for private repositories ask the operator'
      use_ssh_key
      AUTH=ssh
    fi
  fi
  [[ $URL_KIND != https || $URL_HOST != "$GITHUB_HOST" || -z $TOKEN ]] || AUTH=token
}

# Public access can read but not push. The key of the operator is used for a push when the URL of its host is an HTTPS one.
need_push_access() {
  [[ $AUTH == public ]] || return 0
  if [[ $URL_HOST == "$GITHUB_HOST" && -r $SSH_KEY ]]; then
    URL_KIND=ssh URL=ssh://git@${GITHUB_HOST%%:*}/$URL_PATH AUTH=ssh
    use_ssh_key
    return
  fi
  fail "cannot push to $URL_HOST: access is public only, there is no token and no SSH key for this host" \
    'your commits are kept in the clone; ask the operator to set GITHUB_TOKEN or to mount an SSH key'
}

# Runs git against URL, with the one transport that URL needs. The token goes along only if it is for this host.
net() {
  local token=''
  [[ $AUTH != token ]] || token=$TOKEN
  GIT_ALLOW_PROTOCOL=$URL_KIND GITHUB_TOKEN=$token git "$@" </dev/null 2>"$SCRATCH/err"
}

show_err() { # what git said, never with the token
  local text
  text=$(tail -c 4000 -- "$SCRATCH/err")
  [[ -z $TOKEN ]] || text=${text//"$TOKEN"/[token]}
  [[ -z $text ]] || printf '%s\n' "$text" >&2
}

net_failed() { # <what failed>
  local next='read the lines of git above'
  show_err
  case $(<"$SCRATCH/err") in
    *'could not read Username'* | *'Authentication failed'* | *'Permission denied (publickey'* | *'error: 403'* | *[Rr]'epository not found'*)
      next="check the URL; if it is right, the access ($AUTH) does not reach this repository: ask the operator" ;;
    *'error: 30'[1278]*) next='the repository has moved; clone it from its new URL' ;;
    *[Rr]'emote branch '*' not found'*) next='call without --branch to get the default branch' ;;
    *'fsck error'* | *'remote: fatal: '*' missing'*) next='the remote sent broken objects; nothing was kept' ;;
    *'Host key verification failed'*) next='the host is not the one the operator knows; tell the operator' ;;
    *'Permission denied'* | *'Read-only file system'* | *'unable to create temporary'*)
      next='you have no write rule for this repository; ask the operator for one' ;;
  esac
  fail "$1" "$next"
}

check_config() { # <config file>: sets REASON and returns 1 if it holds a key outside ALLOWED_KEYS
  local key
  [[ -f $1 && ! -L $1 ]] || { REASON="${1##*/} is not a plain file"; return 1; }
  while IFS= read -r -d '' key; do
    [[ $key =~ $ALLOWED_KEYS ]] || { REASON="its config sets \`$key\`, which is not allowed here"; return 1; }
  done < <(git config --file "$1" --no-includes --list --name-only -z 2>/dev/null || printf 'something unreadable\0')
}

# Git follows a `commondir`, a `config.worktree`, alternates and links to other places. Its own clones here have none of them.
check_git_dir() { # <git directory>
  local entry
  [[ -d $1 && ! -L $1 ]] || { REASON="${1##*/} is not a directory of its own"; return 1; }
  for entry in HEAD config; do [[ -f $1/$entry ]] || { REASON="it has no $entry"; return 1; }; done
  for entry in objects refs; do [[ -d $1/$entry ]] || { REASON="it has no $entry/"; return 1; }; done
  for entry in commondir gitdir config.worktree objects/info/alternates; do
    [[ ! -e $1/$entry ]] || { REASON="it has a file $entry, which leads to another place"; return 1; }
  done
  entry=$(find "$1" -type l -print -quit 2>/dev/null) || { REASON='it cannot be read'; return 1; }
  [[ -z $entry ]] || { REASON="${entry#"$1"/} is a symbolic link"; return 1; }
  check_config "$1/config"
}

check_bare() { # <bare repository>
  [[ ! -e $1/.git ]] || { REASON='it is not a bare repository'; return 1; }
  check_git_dir "$1" || return 1
  [[ $(git config --file "$1/config" --no-includes --type=bool core.bare 2>/dev/null) == true ]] ||
    { REASON='it is not a bare repository'; return 1; }
}
