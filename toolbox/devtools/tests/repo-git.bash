# Each subcommand of repo-git, two agents, hostile bare repositories, and the last search for the token. Sourced by run.
# shellcheck shell=bash

P=$WS/repos/plans.git
A=$(home alice)/artifact-repo
B=$(home bob)/artifact-repo
expect 'repo-git help' 0 'init <repo_id>' rg help
expect 'list of nothing' 0 'no repositories yet' rg list
expect 'log of nothing' 1 'no repository yet' rg log
expect 'init' 0 'made the repository plans' rg init plans
check 'it is bare and on main' test "$(raw --git-dir="$P" symbolic-ref HEAD)" = refs/heads/main
check 'nothing temporary is left' test -z "$(find "$WS/repos" -name '.tmp-*')"
expect 'init twice' 1 'exists already' rg init plans
expect 'log without commits' 0 'no commits yet' rg log
expect 'clone' 0 'artifact-repo/plans' rg clone plans
expect 'clone twice' 1 'already' rg clone plans
expect 'clone of an unknown one' 1 'no repository' rg clone nope
mkdir -p "$A/plans/docs" && printf 'hello\n' >"$A/plans/docs/a b.md" && printf 'x\0y' >"$A/plans/bin.dat"
expect 'status' 0 'docs/' rg status
expect 'commit' 0 '2 file' rg commit --message 'first plan'
expect 'push' 0 'pushed main' rg push
expect 'log' 0 'alice: first plan' rg log
expect 'log of another agent, without a clone' 0 'alice: first plan' rg_bob log plans --limit 1
expect 'log with a wrong limit' 2 'not a number' rg log --limit 0
expect 'tree' 0 '6 docs/a b.md' rg tree
expect 'tree of a path' 0 '^ *6 docs/a b.md$' rg tree plans docs
expect 'tree of a path, without an id' 0 '^ *6 docs/a b.md$' rg tree docs/
expect 'tree at a revision' 0 'docs' rg tree --rev main
expect 'tree of an unknown path' 1 'there is no .nope' rg tree plans nope
expect 'show of a file' 0 '^hello$' rg show 'main:docs/a b.md'
expect 'show of a directory' 0 'a b.md' rg show plans main:docs
expect 'show of a binary file' 0 'binary file of 3 bytes' rg show main:bin.dat
expect 'show of a commit' 0 'first plan.*hello' rg show main
expect 'diff of the first commit' 0 '\+hello' rg diff
expect 'bob clones' 0 'artifact-repo/plans' rg_bob clone plans
printf 'hello bob\n' >"$B/plans/docs/a b.md" && rg_bob commit --message bob
expect 'bob pushes' 0 'pushed' rg_bob push
expect 'diff of the last commit' 0 '\+hello bob' rg diff
expect 'diff of two revisions' 0 '\+hello bob' rg diff plans main~1 main
expect 'diff of two revisions, without an id' 0 '-hello bob' rg diff main main~1
expect 'diff from a revision' 0 '\+hello bob' rg diff main~1
printf 'hello alice\n' >"$A/plans/docs/a b.md" && rg commit --message alice
expect 'push behind' 1 'nothing was pushed.*next: call .repo-git pull plans' rg push
expect 'pull with a conflict' 1 'conflicting files:.docs/a b.md.*next:' rg pull
check 'a conflict leaves the copy as before' grep -q 'hello alice' "$A/plans/docs/a b.md"
check 'and no merge is open' absent "$A/plans/.git/MERGE_HEAD"
raw -C "$A/plans" reset -q --hard HEAD~1
printf 'other\n' >"$A/plans/other" && rg commit --message other
expect 'pull merges' 0 'pulled main' rg pull
expect 'push after the pull' 0 'pushed' rg push
expect 'bob pulls' 0 'pulled main' rg_bob pull plans
expect 'list' 0 'plans.*alice.*working copy in artifact-repo' rg list

rg init zeta
expect 'several repositories' 0 'alice' rg log
rm -rf "$A/plans" && expect 'several repositories, no copy' 2 'several repositories: plans zeta' rg log
rg clone plans
raw clone -q --bare "$P" "$WS/shared/templates/default-repo.git"
git config --file "$WS/shared/templates/default-repo.git/config" --unset-all remote.origin.url || true
expect 'init from the template' 0 'made' rg init from-template
expect 'the template is in it' 0 'first plan' rg log from-template
check 'it does not name the template' test -z "$(git config --file "$WS/repos/from-template.git/config" --get-regexp '^remote' || true)"
git config --file "$WS/shared/templates/default-repo.git/config" core.fsmonitor x
expect 'a hostile template' 1 'refused' rg init next
check 'and nothing is left of the try' test -z "$(find "$WS/repos" -name '*next*')"
rm -rf "$WS/shared/templates/default-repo.git"

for id in A 1a -a a_b a.b ../a a/b "$(printf 'a%.0s' {1..64})" ''; do
  expect "refused id: ${id@Q}" 2 'not a valid repo_id' rg init -- "$id"
  expect "refused id in clone: ${id@Q}" 2 'not a valid repo_id' rg clone -- "$id"
done
for rev in --output=x '-x' 'main..x' '@{u}' ':/x' '^main'; do
  rg show plans -- "$rev"
  check "refused revision: ${rev@Q}" test "$CODE" != 0
  rg diff plans -- "$rev" main
  check "refused revision in diff: ${rev@Q}" test "$CODE" != 0
done
for path in ../x /etc/passwd docs/../../x; do
  expect "refused path: $path" 2 'not a path inside' rg tree plans "$path"
  expect "refused path in show: $path" 2 'not a path inside' rg show plans "main:$path"
done
ln -s "$AREA/outside/.git" "$WS/repos/linked.git"
expect 'a linked bare repository' 1 'no repository' rg log linked
rm "$WS/repos/linked.git"

# A bare repository with hooks and hostile attributes of another agent.
mkdir -p "$P/hooks" "$P/info"
for hook in pre-receive update post-receive post-update reference-transaction; do trap_script "$P/hooks/$hook"; done
printf '* diff=x filter=x\n' >"$P/info/attributes"
printf 'again\n' >"$A/plans/again" && rg commit plans --message again
expect 'push past hooks' 0 'pushed' rg push plans
expect 'diff past attributes' 0 'again' rg diff plans
git config --file "$P/config" diff.x.textconv "$E"
for sub in log diff tree; do expect "$sub of a hostile bare repository" 1 'diff.x.textconv' rg "$sub" plans; done
expect 'push to a hostile bare repository' 1 'diff.x.textconv' rg push plans
expect 'list names it' 0 'plans.refused' rg list
git config --file "$P/config" --unset diff.x.textconv
git config --file "$A/plans/.git/config" remote.origin.url "$UP"
expect 'the remote is always the repository of that name' 0 'up to date' rg pull plans
check 'no trap was sprung by repo-git' test -z "$(ls -A "$AREA/caught")"

# Without a write rule. Root can write everywhere, so this needs another user.
if ((EUID != 0)); then
  chmod -R a-w "$WS/repos"
  expect 'init without a write rule' 1 'your write rules must include .repos/' rg init more
  printf 'more\n' >"$A/plans/more" && rg commit plans --message more
  expect 'push without a write rule' 1 'your write rules must include .repos/' rg push plans
  expect 'log without a write rule' 0 'again' rg log plans
  chmod -R u+w "$WS/repos"
else
  printf 'skip  calls without a write rule (root can write everywhere)\n'
fi

mkdir -p "$WS/repos/.tmp-old.aaaaaaaa" && touch -d '1 hour ago' "$WS/repos/.tmp-old.aaaaaaaa"
rg init late
check 'init removes what a killed one left' absent "$WS/repos/.tmp-old.aaaaaaaa"

check 'the token is in no file of the workspace or of TMPDIR' test -z "$(grep -rl -- "$SECRET" "$WS" "$AREA/tmp" || true)"
check 'the token is in no output' test -z "$(grep -l -- "$SECRET" "$AREA/all-output" || true)"
check 'TMPDIR has no more than what the killed call left' test "$(find "$AREA/tmp" -mindepth 1 -maxdepth 1 | wc -l)" -le 1
