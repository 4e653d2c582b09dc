# Each subcommand of github-repo against a local bare repository, and wrong calls. Sourced by run.
# shellcheck shell=bash

mkdir -p "$AREA/tmp" "$WS/agents/alice" "$WS/agents/bob" "$WS/shared/templates"
UP=$WS/shared/site.git
raw init -q --bare "$UP"
raw clone -q "$UP" "$AREA/seed" 2>/dev/null
printf 'one\n' >"$AREA/seed/a.txt"
raw -C "$AREA/seed" add -A && raw -C "$AREA/seed" commit -qm first && raw -C "$AREA/seed" push -q origin HEAD:main
raw -C "$AREA/seed" push -q origin HEAD:side
R=$(home alice)/repos

expect 'help' 0 'pr create' gr help
expect 'no arguments gives help' 0 'pr create' gr
expect 'list without clones' 0 'no clones yet' gr list
expect 'status without clones' 1 'no clone in .*next:' gr status
expect 'clone' 0 'cloned .* into repos/site, branch main' gr clone "$UP"
check 'clone has the file' test -f "$R/site/a.txt"
expect 'clone onto a taken name' 1 'already a site' gr clone "$UP"
expect 'clone --name --branch' 0 'branch side' gr clone "$UP" --name=other --branch side
expect 'clone of an unknown branch' 1 'default branch' gr clone "$UP" --name x1 --branch nope
check 'a failed clone leaves nothing' absent "$R/.tmp-x1"
expect 'several clones are listed' 2 'several clones: other site' gr status
expect 'list' 0 $'other\tside\\.\\.\\.origin/side\tclean.*site\tmain\\.\\.\\.origin/main\tclean' gr list
expect 'status' 0 '## main...origin/main' gr status site
expect 'remove' 0 'removed other' gr remove other
check 'removed clone is gone' absent "$R/other"
expect 'remove of nothing' 1 'no clone' gr remove other
expect 'remove without a name' 2 'needs the name' gr remove
expect 'commit without changes' 0 'nothing to commit' gr commit --message hi
printf 'two\n' >"$R/site/b c.txt"
expect 'status shows the file' 0 'b c.txt' gr status
expect 'commit' 0 'committed [0-9a-f]+ on main: 1 file' gr commit --message '-x is
two lines'
check 'author is the agent' test "$(raw -C "$R/site" log -1 --format='%an %ae')" = 'alice alice@agents.invalid'
check 'message is whole' test "$(raw -C "$R/site" log -1 --format=%s)" = '-x is two lines'
expect 'list shows ahead' 0 'ahead 1' gr list
expect 'push' 0 'pushed main at' gr push
check 'push arrived' test "$(raw --git-dir="$UP" rev-parse main)" = "$(raw -C "$R/site" rev-parse main)"
expect 'status after the push' 0 '## main...origin/main$' gr status
expect 'branch --create' 0 'created and switched to topic/one' gr branch --create topic/one
expect 'branch --create of an old one' 0 'switched to main' gr branch site --create main
expect 'branch --create of a remote one' 0 'switched to the remote branch side' gr branch --create side
expect 'branch lists' 0 '\* side .*topic/one' gr branch
expect 'push --branch' 0 'pushed topic/one' gr push --branch topic/one
expect 'push of an unknown branch' 1 'no branch' gr push --branch nope
gr branch --create main
expect 'pull, nothing new' 0 'already up to date' gr pull
raw -C "$AREA/seed" pull -q origin main && printf 'three\n' >"$AREA/seed/a.txt"
raw -C "$AREA/seed" commit -qam second && raw -C "$AREA/seed" push -q origin HEAD:main
printf 'four\n' >"$R/site/d.txt" && gr commit --message four
expect 'push behind the remote' 1 'nothing was pushed.*next: call .github-repo pull site' gr push
expect 'pull merges' 0 'pulled main: ' gr pull site
check 'pull has the file' grep -q three "$R/site/a.txt"
expect 'push after the pull' 0 'pushed main' gr push
raw -C "$AREA/seed" pull -q origin main && printf 'five\n' >"$AREA/seed/a.txt"
raw -C "$AREA/seed" commit -qam five && raw -C "$AREA/seed" push -q origin HEAD:main
printf 'dirty\n' >"$R/site/a.txt"
expect 'pull over changed files' 1 'pulling site failed.*next: commit' gr pull
gr commit --message six
expect 'pull with a conflict' 1 'conflicting files:.a\.txt.*next: call' gr pull
check 'a conflict leaves the clone as before' test -z "$(raw -C "$R/site" status --porcelain)"
expect 'pr url of a local remote' 1 'no pull requests' gr pr url
raw -C "$R/site" remote set-url origin https://github.com/acme/site.git
expect 'pr url' 0 '^https://github.com/acme/site/pull/new/main$' gr pr url
gr branch --create 'a#b%é"'
expect 'pr url is encoded' 0 'pull/new/a%23b%25%C3%A9%22$' gr pr url
expect 'pr create before the push' 1 'not on the remote yet' gr pr create --title t
TEST_PATH=$AREA/bin
mkdir -p "$AREA/bin"
for tool in bash git flock env cat dirname readlink realpath mktemp mkdir rm mv find grep tail tr wc cut chmod rmdir; do
  ln -s "$(command -v "$tool")" "$AREA/bin/$tool"
done
expect 'pr create without gh' 1 'https://github.com/acme/site/compare/side\.\.\.topic/one\?expand=1.*gh is not installed' gr pr create --title t --base side --head topic/one
expect 'gh without gh' 1 'gh is not installed' gr gh -- pr list
unset TEST_PATH
raw -C "$R/site" remote set-url origin "$UP"
raw -C "$R/site" checkout -q main && raw -C "$R/site" reset -q --hard origin/main

expect 'unknown subcommand' 2 'nearest known one is .clone' gr clon x
expect 'all words in one string' 2 'each word as its own string' gr 'clone https://github.com/a/b'
expect 'unknown option' 2 "'--mesage'.*nearest known one is --message" gr commit --mesage x
expect 'unknown short option' 2 "'-m'.*--message" gr commit -m x
expect 'option without a value' 2 'message needs a value' gr commit --message
expect 'option twice' 2 'given twice' gr commit --message a --message b
expect 'empty message' 2 'is empty' gr commit --message ''
expect 'blank message' 2 'is empty' gr commit --message ' '
expect 'missing message' 2 'needs --message' gr commit
expect 'too many arguments' 2 'unexpected argument' gr pull site x
expect 'unknown pr subcommand' 2 'unknown .pr. subcommand' gr pr list
expect 'unknown clone' 1 'no clone .nope' gr pull nope
expect 'gh without --' 2 'needs .--' gr gh pr list

# Several calls at once, a clone that was killed, and a clone in use.
workers=() CODE=0
for i in 1 2 3 4 5 6; do
  mkdir "$AREA/out$i"
  (OUT=$AREA/out$i && printf '%s\n' "$i" >"$R/site/x$i" && gr commit site --message "p$i" && exit "$CODE") &
  workers+=("$!")
done
for i in "${workers[@]}"; do wait "$i" || CODE=1; done
expect 'six calls at once' 0 ''
check 'six calls at once commit everything' test -z "$(raw -C "$R/site" status --porcelain)"
check 'six calls at once leave a sound clone' raw -C "$R/site" fsck --strict --no-dangling
mkdir -p "$R/.tmp-dead/.git" "$R/.tmp-busy/.git"
exec {busy}>>"$R/.locks/busy" && flock "$busy"
expect 'clone after a killed one' 0 'cloned' gr clone "$UP" --name next
check 'the leftover is removed' absent "$R/.tmp-dead"
check 'a clone at work stays' test -d "$R/.tmp-busy"
exec {busy}>&-
exec {busy}>>"$R/.locks/site" && flock "$busy"
EXTRA=(DEVTOOLS_LOCK_SECONDS=1)
expect 'a locked clone' 1 'another call is at work' gr status site
EXTRA=()
exec {busy}>&-
touch -d '1 hour ago' "$R/site/.git/index.lock"
expect 'an old lock file of git' 0 '##' gr status site
gr remove next
