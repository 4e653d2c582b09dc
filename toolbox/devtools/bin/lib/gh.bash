# Runs `gh` for the model, with a token that the model must not get.
#
# It must never pass a call that prints or stores the token, sends it to another host, or reads a file that the caller
# chooses: `--body-file /proc/self/environ` would post the token on a web page. So the list is of what is allowed, and a new
# version of gh adds nothing to it. The checks rest on one rule: a short option is an argument of its own, never glued.
# shellcheck shell=bash

declare -rA GH_ALLOWED=(
  [api]='*' [status]='*' [search]='code commits issues prs repos'
  [issue]='close comment create edit list reopen status view'
  [pr]='checks close comment diff edit list merge ready reopen review status view'
  [repo]='list view' [run]='cancel list rerun view' [workflow]='list run view' [release]='list view' [label]='list'
)

gh_check() { # <arguments for gh>
  local command=${1:-} sub=${2:-} before='' argument value
  [[ $command ]] || wrong_call 'nothing to run' "call \`$PROGRAM gh [<repo>] -- <command> <arguments>\`"
  [[ $command =~ ^[a-z-]+$ && -n ${GH_ALLOWED[$command]:-} ]] ||
    wrong_call "\`gh $command\` is not allowed here" "allowed are: ${!GH_ALLOWED[*]}"
  if [[ ${GH_ALLOWED[$command]} != '*' ]]; then
    [[ $command != pr || $sub != create ]] || wrong_call '`gh pr create` is not allowed here' "call \`$PROGRAM pr create\`"
    [[ $sub =~ ^[a-z]+$ && " ${GH_ALLOWED[$command]} " == *" $sub "* ]] ||
      wrong_call "\`gh $command $sub\` is not allowed here" "allowed after \`gh $command\` are: ${GH_ALLOWED[$command]}"
  fi
  for argument in "$@"; do
    case $argument in
      -[!-]?*) wrong_call "short options are not glued: ${argument@Q}" 'give the option and its value as two arguments, or write --option=value' ;;
      --*file* | --input* | --recover* | --hostname* | --verbose*) wrong_call "the option ${argument%%=*} is not allowed here" 'give the text itself, such as with --body' ;;
    esac
    [[ $command != issue || $sub != create || ($argument != -T && $argument != --template*) ]] ||
      wrong_call 'templates are not allowed here' 'give --title and --body'
    value=$argument
    [[ $argument != --*=* ]] || { before=${argument%%=*} value=${argument#*=}; }
    case $before in
      -q | --jq)
        # The filter language can read the environment of gh, where the token is.
        [[ ! $value =~ (^|[^A-Za-z0-9_])env([^A-Za-z0-9_]|$) && $value != *ENV* ]] ||
          wrong_call 'a filter must not use `env`' 'filter the fields of the answer only' ;;
      -R | --repo)
        [[ $value =~ ^(https://github\.com/)?[A-Za-z0-9][A-Za-z0-9_-]*/[A-Za-z0-9._-]+$ ]] ||
          wrong_call "${value@Q} is not <owner>/<name>" 'name a repository of github.com' ;;
      -F | --field)
        [[ $command == api || $command == workflow ]] && [[ $value != *=@* && $value != @* && $value == *=* ]] ||
          wrong_call "a value from a file is not allowed here: ${value@Q}" 'give the text itself, such as with --body or -f' ;;
    esac
    # `gh api` must not do what `gh ssh-key`, `gh secret` and their like are refused for.
    if [[ $command == api && ! $before =~ ^(-f|--raw-field|-F|--field|-q|--jq)$ ]]; then
      [[ ! ${value,,} =~ (^|/)(keys|gpg_keys|ssh_signing_keys|secrets|hooks|collaborators|codespaces)([/?#]|$) && ! $value =~ %[4-7] ]] ||
        wrong_call "the endpoint ${value@Q} is not allowed here" 'keys, secrets, hooks and collaborators are for the operator'
    fi
    # gh would send the token to hosts that it takes for GitHub's, such as tenants of ghe.com.
    [[ ! $value =~ ^[A-Za-z][A-Za-z0-9+.-]*:// || $value =~ ^https://(api\.)?github\.com(/|$) || $before =~ ^(-b|--body|-t|--title|-f|--raw-field)$ ]] ||
      wrong_call "the URL ${value@Q} is not one of github.com" 'give the number or the path'
    before=$argument
  done
}

# gh_ready: says why gh cannot be used, and returns 1; or nothing.
gh_ready() {
  command -v gh >/dev/null || { REASON='gh is not installed on this machine'; return 1; }
  [[ $GITHUB_HOST == github.com && $URL_HOST == github.com ]] || { REASON="gh is used for github.com only, not for ${URL_HOST:-a local path}"; return 1; }
  [[ $TOKEN ]] || { REASON='there is no token in GITHUB_TOKEN'; return 1; }
}

# gh_run <arguments>: in the clone DIR. The output is held back until it is free of the token.
gh_run() {
  local out code=0
  out=$(
    cd -- "$DIR" || exit 1
    export GITHUB_TOKEN=$TOKEN GH_TOKEN=$TOKEN GH_HOST=github.com GH_CONFIG_DIR=$SCRATCH/gh GH_PROMPT_DISABLED=1 GH_PAGER=cat
    export GH_NO_UPDATE_NOTIFIER=1 GH_NO_EXTENSION_UPDATE_NOTIFIER=1 GH_EDITOR=true GH_BROWSER=true BROWSER=true NO_COLOR=1
    export GIT_ALLOW_PROTOCOL=https GIT_CEILING_DIRECTORIES=$BASE
    unset GH_DEBUG DEBUG GH_REPO GH_PATH GH_FORCE_TTY
    gh "$@" </dev/null 2>"$SCRATCH/err"
  ) || code=$?
  out=${out//"$TOKEN"/[token]}
  [[ -z $out ]] || printf '%s\n' "$out"
  show_err
  return "$code"
}
